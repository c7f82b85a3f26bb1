"""Table, bowls, balls and arms in three dimensions."""

from __future__ import annotations

import numpy as np

from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.physics.arms import Bowl
from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep import kinematics

BLADE = ((0.03, 0.0, 0.0175), (0.03, 0.065, 0.0175))  # middle and half extents of a spatula's blade, m
ROUND = np.linspace(0, 2 * np.pi, 25)
ARM, RIM = 0.03, 0.004  # m
TOP = 0.1  # m, thickness of the table


def shapes(
    table: tuple[float, float],
    bowls: tuple[Bowl, ...],
    balls: Balls,
    bases: Array,
    joints: Array,
    tools: tuple[Array, Array],
) -> dict[str, Shape]:
    """The scene, with `bases` [2, 4, 4] and `joints` [2, 7] (rad) of the arms, and poses of the `tools`."""
    positions, rotations = tools
    middle, half = np.array(BLADE)
    rims = [
        np.stack(
            [
                bowl.center[0] + bowl.radius * np.cos(ROUND),
                bowl.center[1] + bowl.radius * np.sin(ROUND),
                np.full_like(ROUND, height),
            ],
            axis=1,
        )
        for bowl in bowls
        for height in (0.0, bowl.height)
    ]
    arms = [
        kinematics.line(angles) @ base[:3, :3].T + base[:3, 3]
        for base, angles in zip(bases, joints, strict=True)
    ]
    return {
        "table": Boxes(np.array([[0.0, 0.0, -TOP / 2]]), np.array([[*table, TOP / 2]]), np.eye(3)[None]),
        "bowls": Lines(np.stack(rims), RIM),
        "balls": balls,
        "robot/arms": Lines(np.stack(arms), ARM),
        "robot/spatulas": Boxes(positions + rotations @ middle, np.stack([half, half]), rotations),
    }
