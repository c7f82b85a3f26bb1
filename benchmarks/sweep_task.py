"""The bimanual sweep: what a picture and a step cost, how fast frames are read, and the picture of its page.

    python benchmarks/sweep_task.py                    # two minutes; needs an idle core and Bullet
    python benchmarks/sweep_task.py --dataset DATASET  # reads frames of a recording, not of a small new one
    python benchmarks/sweep_task.py --picture          # draws docs/images/bimanual-sweep.png; needs Bullet

Expected on one core, 500 x 500: a picture in at most 1/20 of TinyRenderer's time with fewer than 20 pixels
that differ, a step of the demonstrator in at most 1/6 of its time with TinyRenderer; 1,000 random frames a
second or more. Times are CPU times; those to compare are taken in turns.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np

from robopolicy.envs.sweep.bimanual_sweep import CAMERA
from robopolicy.training.datasets import open_dataset
from robopolicy.training.demonstration import RecordingConfig
from robopolicy.training.frames import Frames
from robopolicy.training.recording import record
from robopolicy.training.worker import EnvironmentSpec
from robopolicy.writing import write_atomically

ID, TASK = "robopolicy:robopolicy/BimanualSweep-v0", "bimanual-sweep"
REPEATS = 4
SIZES = (96, 256, 500)
PARTS = ("picture", "physics", "kinematics", "demonstrator")
PICTURES, STEPS, READS, LEAST = 60, 100, 1500, 1000
MOMENTS = {"start": 0, "sweep": 11, "lift": 20, "drop": 31}
OUT = Path(__file__).parent.parent / "docs" / "images" / "bimanual-sweep.png"
FIGURES = Path(__file__).parent / "bimanual_sweep" / "speed.json"


def pictures() -> dict[str, dict[str, float]]:
    """CPU milliseconds of a picture by TinyRenderer and by our own renderer, and pixels that differ.

    Both draw the same states of a demonstration, in turns, each state several times: TinyRenderer returns a
    million numbers, after which the first picture finds the processor's caches cold.
    """
    env = gymnasium.make(ID, engine="bullet", image_size=None, renderer="tiny").unwrapped
    found = {}
    for size in SIZES:
        env.reset(seed=0)
        scene = env.scene()
        scene.picture(CAMERA, size, size, env.poses())  # compiles, and draws what stands still
        spent, differing = {"tiny": 0.0, "software": 0.0}, []
        for _ in range(PICTURES):
            env.step(env.oracle_action())
            began = time.process_time()
            for _ in range(REPEATS):
                expected = env.physics.render(CAMERA, size, size)
            spent["tiny"] += (time.process_time() - began) / REPEATS
            began = time.process_time()
            for _ in range(REPEATS):
                picture = scene.picture(CAMERA, size, size, env.poses())
            spent["software"] += (time.process_time() - began) / REPEATS
            differing.append(int((picture != expected).any(axis=2).sum()))
        found[str(size)] = {name: 1e3 * seconds / PICTURES for name, seconds in spent.items()}
        found[str(size)]["ratio"] = spent["tiny"] / spent["software"]
        found[str(size)]["most_pixels_off"] = max(differing)
    env.close()
    return found


def steps() -> dict[str, dict[str, float]]:
    """CPU milliseconds of a step at 500 x 500, in turns, and the shares of our renderer's."""
    settings = {
        "bullet, tiny": {"engine": "bullet", "renderer": "tiny"},
        "bullet": {"engine": "bullet"},
        "mujoco": {"engine": "mujoco"},
    }
    envs = {name: gymnasium.make(ID, **each).unwrapped for name, each in settings.items()}
    spent: dict[str, dict[str, float]] = {name: dict.fromkeys(("all", *PARTS), 0.0) for name in envs}
    for name, env in envs.items():
        env.reset(seed=0)
        for method, part in (
            ("picture", "picture"),
            ("_steer", "kinematics"),
            ("oracle_action", "demonstrator"),
        ):
            _watch(env, method, spent[name], part)
        for method in ("step", "command", "balls", "tools"):
            _watch(env.physics, method, spent[name], "physics")
    for _ in range(STEPS):
        for name, env in envs.items():
            began = time.process_time()
            env.step(env.oracle_action())
            spent[name]["all"] += time.process_time() - began
    for env in envs.values():
        env.close()
    return {
        name: {part: 1e3 * seconds / STEPS for part, seconds in parts.items()}
        for name, parts in spent.items()
    }


def _watch(owner: object, method: str, spent: dict[str, float], part: str) -> None:
    """From now on, add the CPU seconds of `owner.method` to `part`."""
    inner = getattr(owner, method)

    def timed(*given: object) -> object:
        began = time.process_time()
        try:
            return inner(*given)
        finally:
            spent[part] += time.process_time() - began

    setattr(owner, method, timed)


def speed() -> bool:
    """Measure pictures and steps, print and keep them; whether they reach their targets."""
    drawn, stepped = pictures(), steps()
    faster = stepped["bullet, tiny"]["all"] / stepped["bullet"]["all"]
    for size, row in drawn.items():
        print(
            f"picture of {size} x {size}: TinyRenderer {row['tiny']:.1f} ms, ours {row['software']:.2f} ms, "
            f"{row['ratio']:.1f} times; at most {row['most_pixels_off']} pixels differ"
        )
    for name, row in stepped.items():
        parts = ", ".join(f"{part} {row[part]:.1f}" for part in PARTS)
        print(f"step on {name}: {row['all']:.1f} ms ({parts})")
    print(f"a step on bullet is {faster:.1f} times as fast as with TinyRenderer")
    write_atomically(FIGURES, json.dumps({"pictures": drawn, "steps": stepped}, indent=1) + "\n")
    largest = drawn[str(SIZES[-1])]
    return largest["ratio"] >= 20 and largest["most_pixels_off"] < 20 and faster >= 6


def reads(dataset: Path) -> bool:
    """Read single frames of `dataset` in random order; whether that is fast enough."""
    opened = open_dataset(dataset, TASK)
    with Frames(opened) as frames:
        order = np.random.default_rng(0).integers(len(frames), size=READS)
        began = time.process_time()  # what a core does, whatever else runs on it
        for index in order:
            frames.image(index, "image")
        rate = READS / (time.process_time() - began)
        count = len(frames)
    height, width, _ = opened.columns.images["image"]
    each = opened.file.stat().st_size / count
    print(f"{count} frames of {height} x {width}, {each:,.0f} bytes a frame")
    print(f"random reads: {rate:.0f} frames a second of a core ({LEAST} or more)")
    return rate >= LEAST


def draw() -> None:
    """Draw moments of a demonstration on both engines."""
    from robopolicy.viz.pictures import picture

    with picture(OUT, (11, 5.8)) as figure:
        figure.set_layout_engine("compressed")  # pictures keep their sides
        axes = figure.subplots(2, len(MOMENTS))
        for engine, row in zip(("bullet", "mujoco"), axes, strict=True):
            env = gymnasium.make(ID, engine=engine, image_size=None, render_mode="rgb_array").unwrapped
            env.reset(seed=9000)
            shown = {}
            for step in range(max(MOMENTS.values()) + 1):
                shown[step] = env.render()
                env.step(env.oracle_action())
            env.close()
            for panel, (title, step) in zip(row, MOMENTS.items(), strict=True):
                panel.imshow(shown[step])
                panel.set(xticks=[], yticks=[])
                if engine == "bullet":
                    panel.set_title(title)
            row[0].set_ylabel({"bullet": "Bullet", "mujoco": "MuJoCo"}[engine])
    print(OUT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--picture", action="store_true")
    given = parser.parse_args()
    if given.picture:
        draw()
        return 0
    fast = [speed()]
    with tempfile.TemporaryDirectory() as scratch:
        dataset = given.dataset
        if dataset is None:
            dataset = Path(scratch) / "sweep-v0"
            environment = EnvironmentSpec(ID, {"engine": "bullet"}, TASK)
            about = {"task": TASK, "format": 1, "environment": {}, "recording": {}, "renderer": "software"}
            record(RecordingConfig(2), environment, dataset, about, workers=2)
        fast.append(reads(dataset))
    return 0 if all(fast) else 1


if __name__ == "__main__":
    sys.exit(main())
