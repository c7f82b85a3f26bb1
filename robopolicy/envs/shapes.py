"""What stands in a task's world, engine apart, for whoever draws it in three dimensions.

Lengths in metres, in the world frame (z up).
"""

from __future__ import annotations

from typing import NamedTuple

from robopolicy.envs.physics.base import Array


class Boxes(NamedTuple):
    """`centers` and `halves` (half extents) [N, 3], `rotations` [N, 3, 3] to the world."""

    centers: Array
    halves: Array
    rotations: Array


class Balls(NamedTuple):
    """`centers` [N, 3] and the `radius` of each."""

    centers: Array
    radius: float


class Lines(NamedTuple):
    """N lines, each through P `points` [N, P, 3], drawn `radius` thick."""

    points: Array
    radius: float


Shape = Boxes | Balls | Lines
