"""The distracted presets of the bimanual sweep: what their pictures cost, and what they look like.

    python benchmarks/sweep_distracted.py              # a minute
    python benchmarks/sweep_distracted.py --picture    # draws docs/images/bimanual-sweep-distracted.png

Expected at 500 x 500: the first picture of an episode, which draws what stands still, takes 30 ms more with
textures; the others take the same time. Times are CPU times, medians over episodes, in turns.
"""

import argparse
import json
import time
from pathlib import Path

import gymnasium
import numpy as np

from robopolicy.writing import write_atomically

ID = "robopolicy:robopolicy/BimanualSweep-v0"
PRICED = ("paper", "distracted-textures", "distracted-strong")
DRAWN = ("paper", "distracted-weak", "distracted", "distracted-strong")
SEEDS = (9000, 9001, 9003, 9004, 9005)
SIZE, EPISODES, PICTURES = 500, 12, 5
ROOT = Path(__file__).parent
OUT = ROOT.parent / "docs" / "images" / "bimanual-sweep-distracted.png"
FIGURES = ROOT / "bimanual_sweep" / "distracted.json"


def prices() -> dict[str, dict[str, float]]:
    """CPU milliseconds of an episode's first picture, and of each picture after it."""
    spent: dict[str, dict[str, list[float]]] = {name: {"first": [], "later": []} for name in PRICED}
    envs = {name: gymnasium.make(ID, preset=name, image_size=None).unwrapped for name in PRICED}
    for seed in range(EPISODES + 1):
        for name, env in envs.items():
            env.reset(seed=seed)
            env._scene = None  # that of `paper` outlives an episode
            began = time.process_time()
            env.picture(env.view(), SIZE, SIZE)
            drawn = time.process_time()
            for _ in range(PICTURES):
                env.picture(env.view(), SIZE, SIZE)
            if seed:  # the first one compiles
                spent[name]["first"].append(drawn - began)
                spent[name]["later"].append((time.process_time() - drawn) / PICTURES)
    return {
        name: {part: 1e3 * float(np.median(seconds)) for part, seconds in parts.items()}
        for name, parts in spent.items()
    }


def draw() -> None:
    """Draw the first moments of some seeds in each preset."""
    from robopolicy.viz.pictures import picture

    with picture(OUT, (7.5, 6.2)) as figure:
        figure.set_layout_engine("compressed")  # pictures keep their sides
        for preset, row in zip(DRAWN, figure.subplots(len(DRAWN), len(SEEDS)), strict=True):
            settings = {"render_mode": "rgb_array", "render_size": (200, 200), "image_size": None}
            env = gymnasium.make(ID, preset=preset, **settings).unwrapped
            for seed, panel in zip(SEEDS, row, strict=True):
                env.reset(seed=seed)
                panel.imshow(env.render())
                panel.set(xticks=[], yticks=[])
            env.close()
            row[0].set_ylabel(preset, fontsize="small")
    print(OUT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--picture", action="store_true")
    if parser.parse_args().picture:
        draw()
        return
    measured = prices()
    for name, row in measured.items():
        print(f"{name}: first picture {row['first']:.1f} ms, others {row['later']:.2f} ms")
    write_atomically(FIGURES, json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
