"""The interface of an engine for the sweeping task: two arms with spatulas, balls and bowls on a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Protocol
from xml.etree import ElementTree

import numpy as np

from robopolicy.envs.physics.base import Array, Engine

RED, GREEN, WOOD = (0.85, 0.1, 0.1, 1.0), (0.15, 0.6, 0.25, 1.0), (0.78, 0.72, 0.62, 1.0)
WALLS = 12  # per bowl; Bullet crashes with more than 16 shapes in a body


@dataclass(frozen=True)
class Bowl:
    """A round bowl of twelve upright walls: `center` (x, y) on the table, inner `radius` and `height` (m)."""

    center: tuple[float, float]
    radius: float = 0.1
    height: float = 0.045
    wall: float = 0.003


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


def arm_with_spatula(tool: Array) -> str:
    """URDF of the arm with absolute mesh paths, and the spatula on its last link at the pose `tool` [4, 4].

    Raises ModuleNotFoundError if pybullet_data is not installed.
    """
    data = find_spec("pybullet_data")
    if data is None or not data.submodule_search_locations:
        raise ModuleNotFoundError(
            "the model of the arms is in pybullet_data, which is part of the package pybullet"
        )
    folder = Path(data.submodule_search_locations[0]) / "kuka_iiwa"
    arm = ElementTree.parse(folder / "model.urdf").getroot()
    own = Path(str(files("robopolicy.assets") / "spatula"))
    spatula = ElementTree.parse(own / "spatula.urdf").getroot()
    for root, place in ((arm, folder), (spatula, own)):
        for mesh in root.iter("mesh"):
            mesh.set("filename", str(place / mesh.attrib["filename"]))
    arm.extend(spatula.findall("link"))
    joint = ElementTree.SubElement(arm, "joint", name="spatula", type="fixed")
    ElementTree.SubElement(joint, "parent", link="lbr_iiwa_link_7")
    ElementTree.SubElement(joint, "child", link="spatula")
    turn = (math.atan2(tool[2, 1], tool[2, 2]), -math.asin(tool[2, 0]), math.atan2(tool[1, 0], tool[0, 0]))
    ElementTree.SubElement(
        joint,
        "origin",
        xyz=" ".join(f"{value:.9g}" for value in tool[:3, 3]),
        rpy=" ".join(f"{value:.17g}" for value in turn),
    )
    return ElementTree.tostring(arm, encoding="unicode")
