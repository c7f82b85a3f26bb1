"""Table, bowls, balls and arms in three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.sweep import kinematics

if TYPE_CHECKING:
    from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep

BLADE = ((0.03, 0.0, 0.0175), (0.03, 0.065, 0.0175))  # middle and half extents of a spatula's blade, m
ROUND = np.linspace(0, 2 * np.pi, 25)
ARM, RIM = 0.03, 0.004  # m
TOP = 0.1  # m, thickness of the table


def shapes(env: BimanualSweep) -> dict[str, Shape]:
    """The scene as it is now, by name."""
    positions, rotations = env.physics.tools()
    middle, half = np.array(BLADE)
    circle = np.stack([np.cos(ROUND), np.sin(ROUND)], axis=1)
    rims = [
        np.column_stack([bowl.center + bowl.radius * circle, np.full_like(ROUND, height)])
        for bowl in env.config.bowls
        for height in (0.0, bowl.height)
    ]
    arms = [
        kinematics.line(angles) @ base[:3, :3].T + base[:3, 3]
        for base, angles in zip(env.workspace.bases, env.physics.joints(), strict=True)
    ]
    table = np.array([[*env.config.table, TOP / 2]])
    return {
        "table": Boxes(np.array([[0.0, 0.0, -TOP / 2]]), table, np.eye(3)[None]),
        "bowls": Lines(np.stack(rims), RIM),
        "balls": Balls(env.balls, env.config.ball_radius),
        "robot/arms": Lines(np.stack(arms), ARM),
        "robot/spatulas": Boxes(positions + rotations @ middle, np.stack([half, half]), rotations),
    }
