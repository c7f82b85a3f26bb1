"""Table, bowls, balls and arms: as shapes, and as a scene for pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.envs.drawing.meshes import ball, box, cylinder
from robopolicy.envs.drawing.scene import Part, Scene, pose
from robopolicy.envs.members import Balls, Boxes, Lines, Shape
from robopolicy.envs.physics.arms import ARM, FLOOR, THICKNESS, bowl_walls
from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep import kinematics
from robopolicy.envs.sweep.distractions import shifted

if TYPE_CHECKING:
    from robopolicy.envs.drawing.robot import Robot
    from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep

BLADE = ((0.03, 0.0, 0.0175), (0.03, 0.065, 0.0175))  # middle and half extents of a spatula's blade, m
ROUND = np.linspace(0, 2 * np.pi, 25)
LIMB, RIM = 0.03, 0.004  # m


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
    table = np.array([[*env.config.table, THICKNESS / 2]])
    others = {"other balls": Balls(env.others, env.config.ball_radius)} if len(env.others) else {}
    return {
        "table": Boxes(np.array([[0.0, 0.0, -THICKNESS / 2]]), table, np.eye(3)[None]),
        "bowls": Lines(np.stack(rims), RIM),
        "balls": Balls(env.balls, env.config.ball_radius),
        **others,
        "robot/arms": Lines(np.stack(arms), LIMB),
        "robot/spatulas": Boxes(positions + rotations @ middle, np.stack([half, half]), rotations),
    }


def scene(env: BimanualSweep) -> Scene:
    """Table, bowls and the arms' bases stand still; links, spatulas and balls move."""
    config, robot, look = env.config, _robot(), env.look
    colours = look.colours
    half = (*config.table, THICKNESS / 2)
    still = [(Part(box(half), colours.table, look.table), pose((0.0, 0.0, -THICKNESS / 2)))]
    for bowl in config.bowls:
        x, y = bowl.center
        for size, place, turn in zip(*bowl_walls(bowl), strict=True):
            where = pose((x + place[0], y + place[1], place[2]), Rotation.from_quat(turn).as_matrix())
            still.append((Part(box(size), colours.bowls), where))
        still.append((Part(cylinder(bowl.radius, FLOOR), colours.bowls), pose((x, y, 0.0))))
    parts = robot.parts
    if any(colours.arms):
        parts = [part._replace(colour=shifted(part.colour, colours.arms)) for part in parts]
    for base in env.workspace.bases:
        placed = zip(parts, robot.poses(kinematics.REST, base), robot.is_moving, strict=True)
        still += [(part, where) for part, where, moves in placed if not moves]
    links = [part for part, moves in zip(parts, robot.is_moving, strict=True) if moves]
    shape = ball(config.ball_radius)
    balls = [Part(shape, colours.balls)] * config.balls
    balls += [Part(shape, colours.other_balls)] * config.distractions.other_balls
    return Scene(still, [*links, *links, *balls], look.lighting, look.background)


def poses(env: BimanualSweep) -> Array:
    """Poses of what moves, [M, 4, 4] (to world)."""
    robot = _robot()
    places = np.concatenate([env.balls, env.others])
    balls = np.tile(np.eye(4), (len(places), 1, 1))
    balls[:, :3, :3], balls[:, :3, 3] = env.physics.ball_turns(), places
    arms = [
        robot.poses(joints, base)[robot.is_moving]
        for joints, base in zip(env.physics.joints(), env.workspace.bases, strict=True)
    ]
    return np.concatenate([*arms, balls])


def _robot() -> Robot:
    from robopolicy.envs.drawing.robot import read_robot  # it imports an engine

    return read_robot(ARM)
