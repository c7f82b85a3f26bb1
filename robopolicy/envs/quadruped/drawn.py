"""Stones and robot in three dimensions."""

from __future__ import annotations

import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.physics.base import Array, BodyState
from robopolicy.envs.quadruped.kinematics import FOOT_RADIUS, leg_lines
from robopolicy.envs.quadruped.terrain import Terrain

TRUNK = (0.25, 0.085, 0.06)  # half its sides, m
LIMB = 0.02  # m


def shapes(terrain: Terrain, state: BodyState, landings: Array) -> dict[str, Shape]:
    """Stones, the robot in `state`, and where its feet are going to land [N, 3] (m, world)."""
    solids = terrain.solids()
    legs = state.position + leg_lines(state.joint_positions.reshape(4, 3)) @ state.rotation.T
    return {
        "stones": Boxes(
            np.array([box.center for box in solids]),
            np.array([box.half for box in solids]),
            Rotation.from_euler("z", [[box.yaw] for box in solids]).as_matrix(),
        ),
        "robot/trunk": Boxes(state.position[None], np.array([TRUNK]), state.rotation[None]),
        "robot/legs": Lines(legs, LIMB),
        "robot/feet": Balls(legs[:, -1], FOOT_RADIUS),
        "footholds": Balls(landings, LIMB),
    }
