"""Where the balls of the sweep lie at first: those to sweep, and others that have to stay."""

from __future__ import annotations

import numpy as np

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep.stripes import is_sweepable

TRIES = 1000  # to find a place for a ball
ASIDE = (0.18, 0.28)  # m, from the middle line to a ball that has to stay


def scattered_others(count: int, within: float, apart: float, rng: np.random.Generator) -> Array:
    """Places [count, 2] (m) of balls that have to stay, `within` of the middle along x and `apart`.

    Raises ValueError, in one line, if there is no room for them.
    """
    places = np.empty((0, 2))
    for _ in range(TRIES * count):
        x, aside = rng.uniform(-within, within), rng.uniform(*ASIDE)
        place = np.array([x, aside * rng.choice([-1.0, 1.0])])
        if _is_apart(place, places, apart):
            places = np.vstack([places, place])
        if len(places) == count:
            break
    if len(places) < count:
        raise ValueError(f"other_balls is {count}: there is no room for them {apart:g} m apart")
    return places


def scattered(
    count: int, within: float, apart: float, others: Array, radius: float, rng: np.random.Generator
) -> Array:
    """Places [count, 2] (m) of balls to sweep, `within` of the middle and `apart`.

    Each can be swept, alone at least, without the `others` [M, 2]. Raises ValueError, in one line, if there
    is no room for them.
    """
    places = np.empty((0, 2))
    for _ in range(TRIES * count):
        place = rng.uniform(-within, within, 2)
        if _is_apart(place, places, apart) and is_sweepable(place, others, radius):
            places = np.vstack([places, place])
        if len(places) == count:
            return places
    raise ValueError(f"scatter is {within}: there is no room for {count} balls {apart:g} m apart")


def _is_apart(place: Array, places: Array, apart: float) -> bool:
    return not len(places) or bool(np.linalg.norm(places - place, axis=1).min() >= apart)
