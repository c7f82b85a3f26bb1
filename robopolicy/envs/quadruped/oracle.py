"""The oracle: reads the stones themselves and moves each landing onto one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array
from robopolicy.envs.quadruped.terrain import Terrain

MARGIN = 0.06  # m to the edge that it keeps


def foothold_offsets(terrain: Terrain, nominal: Array, largest: float, margin: float = MARGIN) -> Array:
    """The smallest offset [4] (m) that puts each `nominal` landing [4, 2] (world, m) `margin` inside a stone.

    Where no offset within `largest` does, the one that comes closest.
    """
    starts, ends = terrain.edges(nominal[:, 1])
    targets = np.clip(nominal[:, :1], starts + margin, ends - margin)  # [4, stones]
    offsets = targets - nominal[:, :1]
    least = np.abs(offsets).argmin(axis=1)
    return np.clip(offsets[np.arange(len(nominal)), least], -largest, largest)


def act(terrain: Terrain, nominal: Array, largest: float) -> NDArray[np.float32]:
    """`foothold_offsets` as an action in [-1, 1], [4]."""
    return (foothold_offsets(terrain, nominal, largest) / largest).astype(np.float32)
