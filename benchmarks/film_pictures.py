"""Stills of what `robopolicy rollout` films: the pictures of README.md and docs/seeing.md.

    python benchmarks/film_pictures.py                   # all; --only NAME for some

Writes docs/images/rollout.png and rollout-sweep.png: the shipped hybrid policies on seed 9000, 57 and 62
steps after the start; side-by-side.png: hybrid and no vision on stones, when the latter falls;
memory.png: with and without a memory on `front`, when the latter falls.
"""

import argparse
from pathlib import Path

import imageio.v3 as imageio

from robopolicy.experiments.environments import Environment
from robopolicy.experiments.filmed_episode import FilmedEpisode
from robopolicy.experiments.films import side_by_side

OUT = Path(__file__).parent.parent / "docs" / "images"
SEED, SIZE = 9000, (960, 540)
STILLS = {
    "rollout.png": (Environment("stepping-stones", "mujoco"), ("stepping-stones-angular-8x8",), 57),
    "rollout-sweep.png": (Environment("bimanual-sweep", "bullet"), ("bimanual-sweep-best",), 62),
    "side-by-side.png": (
        Environment("stepping-stones", "bullet"),
        ("stepping-stones-angular-8x8", "stepping-stones-no-vision"),
        200,
    ),
    "memory.png": (
        Environment("stepping-stones", "mujoco", "front"),
        ("stepping-stones-memory", "stepping-stones-front-no-memory"),
        200,
    ),
}


def main() -> None:
    """Play, draw and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=STILLS, nargs="+", default=list(STILLS))
    for name in parser.parse_args().only:
        environment, policies, last = STILLS[name]
        episodes = [FilmedEpisode(policy, environment, SIZE) for policy in policies]
        for episode in episodes:
            episode.begin(SEED, ticks=False)
        for _ in range(last):
            pictures = [episode.advance(None)[-1] for episode in episodes]
            if any(episode.over for episode in episodes):
                break
        for episode in episodes:
            episode.env.close()
        imageio.imwrite(OUT / name, side_by_side(pictures))
        print(OUT / name)


if __name__ == "__main__":
    main()
