"""Stills of what `robopolicy rollout` films: the pictures of README.md and docs/seeing.md.

    python benchmarks/film_pictures.py

Writes docs/images/rollout.png and rollout-sweep.png: the shipped hybrid policies on seed 9000, 57 and 62
steps after the start; and side-by-side.png: hybrid and no vision on stones, when the latter falls.
"""

import argparse
from pathlib import Path

import imageio.v3 as imageio

from robopolicy.cli.filming import side_by_side
from robopolicy.cli.takes import Take

OUT = Path(__file__).parent.parent / "docs" / "images"
SEED, SIZE = 9000, (960, 540)
STILLS = {
    "rollout.png": ("stepping-stones", "mujoco", ("stepping-stones-angular-8x8",), 57),
    "rollout-sweep.png": ("bimanual-sweep", "bullet", ("bimanual-sweep-angular",), 62),
    "side-by-side.png": (
        "stepping-stones",
        "bullet",
        ("stepping-stones-angular-8x8", "stepping-stones-no-vision"),
        200,
    ),
}


def main() -> None:
    """Play, draw and write."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    for name, (task, engine, policies, last) in STILLS.items():
        takes = [Take(policy, task, engine, "paper", None, SIZE) for policy in policies]
        for take in takes:
            take.begin(SEED, ticks=False)
        for _ in range(last):
            pictures = [take.advance(None)[-1] for take in takes]
            if any(take.over for take in takes):
                break
        for take in takes:
            take.env.close()
        imageio.imwrite(OUT / name, side_by_side(pictures))
        print(OUT / name)


if __name__ == "__main__":
    main()
