"""The bimanual sweep: what a step costs, how fast single frames are read, and the picture of its page.

    python benchmarks/sweep_task.py                    two minutes; needs an idle core
    python benchmarks/sweep_task.py --dataset DATASET  reads frames of a recording in place of a small new one
    python benchmarks/sweep_task.py --picture          draws docs/images/bimanual-sweep.png; needs OpenGL

Expected on one core, 500 x 500: 100 steps of the demonstrator in at most 12 s, with physics and kinematics
together under 10 % of it; 1,000 random frames a second or more.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import gymnasium
import numpy as np

from robopolicy.training.datasets import open_dataset
from robopolicy.training.frames import Frames
from robopolicy.training.recording import RecordingConfig, record
from robopolicy.training.worker import EnvironmentSpec

ID, TASK = "robopolicy:robopolicy/BimanualSweep-v0", "bimanual-sweep"
STEPS, READS, LEAST = 100, 1500, 1000
MOMENTS = {"start": 0, "sweep": 11, "lift": 20, "drop": 31}
OUT = Path(__file__).parent.parent / "docs" / "images" / "bimanual-sweep.png"


class Timed:
    """Seconds spent in methods of objects, by what they are for."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: object, method: str, purpose: str) -> None:
        """From now on, add the time of `owner.method` to `purpose`."""
        inner = getattr(owner, method)

        def timed(*given: object) -> object:
            began = time.perf_counter()
            try:
                return inner(*given)
            finally:
                self.seconds[purpose] = self.seconds.get(purpose, 0.0) + time.perf_counter() - began

        setattr(owner, method, timed)


def stretch() -> bool:
    """Play 100 steps at 500 x 500 and print where the time goes; whether it is fast enough."""
    env = gymnasium.make(ID, engine="bullet").unwrapped
    env.reset(seed=0)
    timed = Timed()
    timed.watch(env.physics, "render", "renderer")
    timed.watch(env.physics, "step", "physics")
    timed.watch(env.physics, "command", "physics")
    timed.watch(env, "_steer", "kinematics")
    began = time.perf_counter()
    for _ in range(STEPS):
        env.step(env.oracle_action())
    whole = time.perf_counter() - began
    env.close()
    shares = {purpose: seconds / whole for purpose, seconds in timed.seconds.items()}
    print(
        f"{STEPS} steps in {whole:.1f} s (at most 12): "
        + ", ".join(f"{p} {s:.1%}" for p, s in shares.items())
    )
    moving = shares["physics"] + shares["kinematics"]
    print(f"physics and kinematics together {moving:.1%} (under 10 %)")
    return whole <= 12 and moving < 0.1


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
    fast = [stretch()]
    with tempfile.TemporaryDirectory() as scratch:
        dataset = given.dataset
        if dataset is None:
            dataset = Path(scratch) / "sweep-v0"
            environment = EnvironmentSpec(ID, {"engine": "bullet"}, TASK)
            about = {"task": TASK, "format": 1, "environment": {}, "recording": {}, "renderer": "bullet"}
            record(RecordingConfig(2), environment, dataset, about, workers=2)
        fast.append(reads(dataset))
    return 0 if all(fast) else 1


if __name__ == "__main__":
    sys.exit(main())
