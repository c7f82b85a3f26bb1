"""The oracle: reads the stones themselves and moves each landing onto one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array
from robopolicy.envs.quadruped.terrain import Terrain

MARGIN = 0.06  # m to the edge that it keeps


def foothold_offsets(terrain: Terrain, nominal: Array, largest: float, margin: float = MARGIN) -> Array:
    """The smallest offset [4] (m) that puts each `nominal` landing [4] (world x, m) `margin` inside a stone.

    Where no offset within `largest` does, the one that comes closest.
    """
    low = (terrain.starts + margin)[:, None]
    high = (terrain.ends - margin)[:, None]
    targets = np.clip(nominal, low, high)  # [stones, 4]
    best = np.abs(targets - nominal).argmin(axis=0)
    offsets = targets[best, np.arange(len(nominal))] - nominal
    return np.clip(offsets, -largest, largest)


def act(terrain: Terrain, nominal: Array, largest: float) -> NDArray[np.float32]:
    """`foothold_offsets` as an action in [-1, 1], [4]."""
    return (foothold_offsets(terrain, nominal, largest) / largest).astype(np.float32)
