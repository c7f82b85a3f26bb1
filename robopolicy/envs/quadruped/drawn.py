"""Stones and robot: as shapes, and as a scene for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.control.kinematics import leg_lines
from robopolicy.envs.drawing.meshes import box
from robopolicy.envs.drawing.scene import Part, Scene, pose
from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.physics.base import STONES_LIGHT, Array

if TYPE_CHECKING:
    from robopolicy.envs.drawing.robot import Robot
    from robopolicy.envs.quadruped.stepping_stones import SteppingStones

LIMB = 0.02  # m, the radius of a limb in recordings


def shapes(env: SteppingStones) -> dict[str, Shape]:
    """Stones, robot and footholds now, by name."""
    solids, state = env.terrain.solids(), env.walker.state
    robot = env.config.robot
    legs = state.position + leg_lines(robot.legs, state.joint_positions.reshape(4, 3)) @ state.rotation.T
    return {
        "stones": Boxes(
            np.array([solid.center for solid in solids]),
            np.array([solid.half for solid in solids]),
            _turns([solid.yaw for solid in solids]),
        ),
        "robot/trunk": Boxes(state.position[None], np.array([robot.trunk]), state.rotation[None]),
        "robot/legs": Lines(legs, LIMB),
        "robot/feet": Balls(legs[:, -1], robot.foot_radius),
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
    return Scene(still, _robot(env).parts, STONES_LIGHT)


def poses(env: SteppingStones) -> Array:
    """Poses of the robot's parts, [M, 4, 4] (to world)."""
    state, robot, names = env.walker.state, _robot(env), env.config.robot.joints
    joints = state.joint_positions[[names.index(name) for name in robot.joints]]
    return robot.poses(joints, pose(state.position, state.rotation))


def _robot(env: SteppingStones) -> Robot:
    from robopolicy.envs.drawing.robot import read_robot  # it imports an engine

    return read_robot(env.config.robot.model_path)


def _turns(yaws: list[float]) -> Array:
    return np.asarray(Rotation.from_euler("z", np.array(yaws)[:, None]).as_matrix())
