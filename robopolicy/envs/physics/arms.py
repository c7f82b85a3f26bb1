"""The interface of an engine for the sweeping task: two arms with spatulas, balls and bowls on a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from robopolicy.envs.physics.base import Array, Engine, Lighting

ARM = Path(str(files("robopolicy.assets") / "iiwa" / "iiwa.xml"))  # the arm with its spatula
RED, GREEN, WOOD = (0.85, 0.1, 0.1, 1.0), (0.15, 0.6, 0.25, 1.0), (0.78, 0.72, 0.62, 1.0)
TABLE_LIGHT = Lighting((1.0, -0.6, 2.0), ambient=0.6, far=5.0)
THICKNESS = 0.1  # m, of the table's top
FLOOR = 0.002  # m, thickness of a bowl's floor, which is visual only: balls lie on the table
WALLS = 12  # per bowl; Bullet crashes with more than 16 shapes in a body


@dataclass(frozen=True)
class Bowl:
    """A round bowl of twelve upright walls: `center` (x, y) on the table, inner `radius` and `height` (m)."""

    center: tuple[float, float]
    radius: float = 0.1
    height: float = 0.045
    wall: float = 0.003


@dataclass(frozen=True)
class ArmsConditions:
    """Physical parameters of an episode, which policies do not observe: multiples of an engine's own values.

    friction: of table, bowls and spatulas; rolling_friction: of the balls; response: rate at which joints
    approach their targets; latency: s, from a command to the arms' obedience, a control period at most.
    """

    friction: float = 1.0
    rolling_friction: float = 1.0
    response: float = 1.0
    latency: float = 0.0


class Placement(NamedTuple):
    """The initial scene. Lengths in metres; the centre of the table's top is the origin.

    bases: poses of the arms, [2, 3] (x, y, yaw); joints: [2, 7] (rad); balls: their centres, [N, 3].
    """

    bases: Array
    joints: Array
    balls: Array
    ball_radius: float
    ball_mass: float
    bowls: tuple[Bowl, ...]
    table: tuple[float, float]  # half of its sides
    conditions: ArmsConditions = ArmsConditions()


class ArmsPhysics(Engine, Protocol):
    """Two arms over a table."""

    def reset(self, placement: Placement) -> None:
        """Rebuild the world, with everything at rest."""

    def command(self, joints: Array) -> None:
        """Set the target angles [2, 7] (rad) of the joints."""

    def joints(self) -> Array:
        """Joint angles [2, 7] (rad)."""

    def tools(self) -> tuple[Array, Array]:
        """Positions [2, 3] (m, world) and rotations [2, 3, 3] (to world) of the spatulas."""

    def balls(self) -> Array:
        """Centres of the balls, [N, 3] (m, world)."""

    def ball_turns(self) -> Array:
        """Rotations of the balls (to world), [N, 3, 3]."""


def late_substeps(latency: float, period: float, substeps: int) -> int:
    """How many of the physics steps of a control period pass before the arms obey its command."""
    return min(substeps, round(latency / period * substeps))


def bowl_walls(bowl: Bowl) -> tuple[list[list[float]], list[list[float]], list[list[float]]]:
    """Half extents (m), positions (m) and quaternions (x, y, z, w) of a bowl's walls."""
    reach, half = bowl.radius + bowl.wall / 2, bowl.height / 2
    length = reach * math.tan(math.pi / WALLS) + bowl.wall / 2
    sizes, places, turns = [], [], []
    for angle in np.arange(WALLS) * 2 * math.pi / WALLS:
        sizes.append([bowl.wall / 2, length, half])
        places.append([reach * math.cos(angle), reach * math.sin(angle), half])
        turns.append([0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2)])
    return sizes, places, turns


def roll_pitch_yaw(pose: Array) -> tuple[float, float, float]:
    """Angles (rad) about the fixed axes x, y and z of the rotation in `pose` [4, 4]."""
    return (math.atan2(pose[2, 1], pose[2, 2]), -math.asin(pose[2, 0]), math.atan2(pose[1, 0], pose[0, 0]))
