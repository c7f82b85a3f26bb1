"""Stones and robot: as shapes, and as a scene for pictures."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.envs.drawing.meshes import box
from robopolicy.envs.drawing.scene import Part, Scene, pose
from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.physics.base import STONES_LIGHT, Array
from robopolicy.envs.quadruped.kinematics import FOOT_RADIUS, leg_lines

if TYPE_CHECKING:
    from robopolicy.envs.drawing.robot import Robot
    from robopolicy.envs.quadruped.stepping_stones import SteppingStones

TRUNK = (0.25, 0.085, 0.06)  # m, half its sides in recordings
LIMB = 0.02  # m, the radius of a limb there


def shapes(env: SteppingStones) -> dict[str, Shape]:
    """Stones, robot and footholds now, by name."""
    solids, state = env.terrain.solids(), env.physics.state()
    legs = state.position + leg_lines(state.joint_positions.reshape(4, 3)) @ state.rotation.T
    return {
        "stones": Boxes(
            np.array([solid.center for solid in solids]),
            np.array([solid.half for solid in solids]),
            _turns([solid.yaw for solid in solids]),
        ),
        "robot/trunk": Boxes(state.position[None], np.array([TRUNK]), state.rotation[None]),
        "robot/legs": Lines(legs, LIMB),
        "robot/feet": Balls(legs[:, -1], FOOT_RADIUS),
        "footholds": Balls(env.marks(), LIMB),
    }


def scene(env: SteppingStones) -> Scene:
    """The stones stand still; the robot moves."""
    solids = env.terrain.solids()
    turns = _turns([solid.yaw for solid in solids])
    still = [
        (Part(box(solid.half), (solid.shade,) * 3), pose(solid.center, turn))
        for solid, turn in zip(solids, turns, strict=True)
    ]
    return Scene(still, _robot().parts, STONES_LIGHT)


def poses(env: SteppingStones) -> Array:
    """Poses of the robot's parts, [M, 4, 4] (to world)."""
    state = env.physics.state()
    return _robot().poses(state.joint_positions, pose(state.position, state.rotation))


def _robot() -> Robot:
    from robopolicy.envs.drawing.robot import read_robot  # it imports an engine

    return read_robot(Path(str(files("robopolicy.assets") / "laikago.xml")))


def _turns(yaws: list[float]) -> Array:
    return np.asarray(Rotation.from_euler("z", np.array(yaws)[:, None]).as_matrix())
