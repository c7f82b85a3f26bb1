"""A robot as a table: its model's names, lengths, masses, limits, gains, gait and cameras."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from robopolicy.control.gait import SwingConfig, TrotConfig
from robopolicy.control.kinematics import LEGS, Legs, joint_angles
from robopolicy.control.stance import StanceConfig
from robopolicy.control.state import Array
from robopolicy.naming import check_name, shown
from robopolicy.settings import check_count, check_fields, check_number, check_types

JOINTS = 3 * len(LEGS)
OF_JOINTS = ("limits", "torques")  # checked joint by joint
UNLIMITED = 1e6  # rad or N m, of a joint whose model has no limit: JSON has no infinity
LARGEST = 1e18  # of all numbers of a table; larger whole ones fit into no array of integers
MOST_PIXELS = 2048  # of a side of an image


@dataclass(frozen=True)
class CameraConfig:
    """A depth camera whose mount turns with the robot's yaw and stays level in roll and pitch.

    `position` (m) is relative to the base. `tilt` (deg) is the angle of the optical axis from straight down
    towards the front. `fields` (deg) are the horizontal and vertical fields of view. The first row of an
    image is the farthest ahead, the first column the farthest left.
    """

    position: tuple[float, float, float]
    tilt: float
    fields: tuple[float, float]
    width: int = 32
    height: int = 24
    reach: float = 2.0  # m, the largest depth that is measured


@dataclass(frozen=True)
class WalkerConfig:
    """Speeds in m/s, lengths in metres, times in seconds. The defaults are Laikago's."""

    speed: float = 0.6  # commanded; the Laikago walks at 0.58
    ramp: float = 0.5  # time to reach it
    height: float = 0.42  # of the base over the stones
    centring: float = 1.0  # lateral speed per metre of lateral error, 1/s
    heading: float = 5.0  # yaw rate per radian of yaw error, 1/s
    control_period: float = 0.01
    braking: float = 0.3  # duration of the MPC's braking in a halt, before the joints are held
    replan_every: int = 3  # control periods between two plans of the MPC
    gait: TrotConfig = field(default_factory=TrotConfig)
    swing: SwingConfig = field(default_factory=SwingConfig)
    stance: StanceConfig = field(default_factory=StanceConfig)

    def __post_init__(self) -> None:
        for name, low, high in (
            *(("speed", -5.0, 5.0), ("ramp", 0.001, 100.0), ("height", 0.01, 10.0), ("centring", 0.0, 100.0)),
            *(("heading", 0.0, 100.0), ("control_period", 0.002, 0.02), ("braking", 0.0, 10.0)),
        ):
            check_number(name, getattr(self, name), low, high)
        check_count("replan_every", self.replan_every, 1, 100)
        check_fields(self)
        period, duty = self.gait.period, self.gait.duty
        least = 0.5 + self.control_period / period
        if duty < least - 1e-9:  # no control period may see all feet stand, and a halt would never end
            least = math.ceil(1e4 * least) / 1e4
            raise ValueError(
                f"duty is {duty:g}: with period {period:g} and control_period {self.control_period:g} "
                f"it must be {least:g} or more"
            )


@dataclass(frozen=True)
class Trot:
    """Linear models of the robot's own trot, fitted to half periods with random footholds on solid ground.

    `progress` gives the motion of the base (m) in a half period from its speed, the mean place of the
    standing feet, and the desired speeds at the start and at the end. `speed` gives its speed (m/s) at the
    end from these and, third, the mean place of the landings. Places are along x, relative to the base (m).
    Feet land `overshoot` (m) beyond their targets on average. `sway` gives how far a foot lands to the left
    of straight ahead of its leg's plane (m), from the base's speed (m/s) and place (m) to the left, its roll
    (rad) and its rate (rad/s).
    """

    progress: tuple[float, float, float, float]
    speed: tuple[float, float, float, float, float]
    overshoot: float
    sway: tuple[float, float, float, float]


@dataclass(frozen=True)
class Robot:
    """A four-legged robot. Lengths in metres, angles in radians, masses in kg, torques in N m.

    Legs are in the order FR, FL, RR, RL, joints in the order abduction, hip, knee. Frames have x ahead, y to
    the left and z up.

    Attributes:
      name, title: of commands and files, and for people.
      source: where the model's numbers come from.
      model, urdf: of MuJoCo and of Bullet: a file of the package, a path, or, for Bullet, a file of
        pybullet_data. `urdf` is empty for a robot that Bullet does not have.
      joints, toes: names in the models, [12] and [4]. A toe is a ball.
      hips, turns, lateral: see `kinematics.Legs`; `lateral` is without a sign.
      thigh, shank: from hip to knee and from knee to toe, down and backwards, at joints of 0.
      foot_radius: of the toes.
      trunk: half the sides of a box for the trunk in recordings.
      mass, center, inertia: of the whole robot in its standing pose, in base axes, about the centre.
      lowest_base: height of the base over what it stands on, below which the robot has fallen; below
        the heights of `walker` and `rugged`.
      limits: smallest and largest angle of each joint, [12, 2]; 1e6 rad either way where the model
        has none.
      torques: the largest of each joint, [12].
      held_torque: the largest of a joint that follows positions, in an engine alone; one or [12].
      stiffness, damping: gains of such a joint in MuJoCo and on a real robot, N m/rad and N m s/rad.
      walker, rugged: the low level on level stones, and on stones of several heights with payloads.
      trot: models of the trot.
      front, belly: its depth cameras.
    """

    name: str
    title: str
    source: str
    model: str
    urdf: str
    joints: tuple[str, ...]
    toes: tuple[str, ...]
    hips: tuple[tuple[float, float, float], ...]
    turns: tuple[float, ...]
    lateral: tuple[float, ...]
    thigh: tuple[float, float]
    shank: tuple[float, float]
    foot_radius: float
    trunk: tuple[float, float, float]
    mass: float
    center: tuple[float, float, float]
    inertia: tuple[tuple[float, float, float], ...]
    lowest_base: float
    limits: tuple[tuple[float, float], ...]
    torques: tuple[float, ...]
    held_torque: float | tuple[float, ...]
    stiffness: float
    damping: float
    walker: WalkerConfig
    rugged: WalkerConfig
    trot: Trot
    front: CameraConfig
    belly: CameraConfig

    def __post_init__(self) -> None:
        check_name("a robot", self.name)
        check_types(f"{self}:", vars(self), Robot)
        for name in ("front", "belly"):
            camera = getattr(self, name)
            for side in ("width", "height"):
                check_count(f"{self}: {side} of {name}", getattr(camera, side), 1, MOST_PIXELS)
            check_types(f"{self}: {name}:", vars(camera), CameraConfig)
            for angle in camera.fields:
                check_number(f"{self}: fields of {name}", angle, 1.0, 170.0)
            check_number(f"{self}: reach of {name}", camera.reach, 0.01)
        for name, count in (("progress", 4), ("speed", 5), ("sway", 4)):  # compiled code checks no length
            value = getattr(self.trot, name)
            if np.shape(value) != (count,):
                raise ValueError(f"{self}: trot: {name} is {value}: it must be {count} numbers")
        held = () if isinstance(self.held_torque, int | float) else (("held_torque", (JOINTS,)),)
        for name, shape in (
            *(("joints", (JOINTS,)), ("limits", (JOINTS, 2)), ("torques", (JOINTS,)), *held),
            *(("toes", (4,)), ("hips", (4, 3)), ("turns", (4,)), ("lateral", (4,)), ("inertia", (3, 3))),
        ):
            if (given := np.shape(getattr(self, name))) != shape:
                raise ValueError(f"{self} has {name} of the shape {list(given)}: it must be {list(shape)}")
        for name, value in asdict(self).items():
            if name not in OF_JOINTS and not all(abs(number) <= LARGEST for number in _numbers(value)):
                raise ValueError(
                    f"{self} has {name} {shown(value)}: its numbers must be from {-LARGEST:g} to {LARGEST:g}"
                )
        for name in ("thigh", "shank"):
            check_number(f"{self}: the length of {name}", math.hypot(*getattr(self, name)), 1e-6)
        for name in ("joints", "toes"):
            value = getattr(self, name)
            if len(set(value)) < len(value):
                raise ValueError(f"{self} has {name} {', '.join(value)}: each name may occur once")
        for joint, (low, high), torque in zip(self.joints, self.limits, self.torques, strict=True):
            if not -LARGEST <= low < high <= LARGEST:
                raise ValueError(
                    f"{self} has limits {shown(low)} and {shown(high)} of {joint!r}: low must be below high, "
                    f"both from {-LARGEST:g} to {LARGEST:g}"
                )
            if not 0 < torque <= LARGEST:
                raise ValueError(
                    f"{self} has a torque of {shown(torque)} for {joint!r}: it must be above 0, and at most "
                    f"{LARGEST:g}"
                )
        if not all(turn in (1.0, -1.0) for turn in self.turns):
            raise ValueError(f"{self} has turns {self.turns}: each must be 1 or -1")
        for name in ("mass", "foot_radius", "stiffness", "damping", "lowest_base"):
            check_number(f"{self}: {name}", getattr(self, name), 1e-6)
        for torque in np.ravel(self.held_torque):
            check_number(f"{self}: held_torque", float(torque), 1e-6)
        inertia = np.array(self.inertia)
        if not (np.allclose(inertia, inertia.T) and np.linalg.eigvalsh(inertia).min() > 0):
            raise ValueError(f"{self} has the inertia {self.inertia}: it must be symmetric and positive")
        for name in ("walker", "rugged"):
            height = getattr(self, name).height
            self.check_stands(name, height)
            if not self.lowest_base < height:
                raise ValueError(
                    f"{self}: lowest_base is {self.lowest_base}: it must be below the height of {name}, "
                    f"{height}"
                )

    def check_stands(self, name: str, height: float) -> None:
        """Raise ValueError unless the robot can stand at the `height` (m) of its `name`, `walker` or so."""
        legs, down = self.legs, self.foot_radius - np.array(self.hips)[:, 2]
        lowest, highest = (down + abs(legs.thigh - legs.shank)).max(), (down + self.leg).min()
        check_number(f"{self}: height of {name}", height, float(lowest), float(highest))
        standing = self.standing_joints(height)
        for joint, angle, (low, high) in zip(self.joints, standing.tolist(), self.limits, strict=True):
            if not low <= angle <= high:
                raise ValueError(
                    f"{self} stands with {joint!r} at {angle:.3f}, at the height of {name}, {height}: "
                    f"its limits are {low} and {high}"
                )

    def __str__(self) -> str:
        return f"robot {self.name!r}"

    @cached_property
    def legs(self) -> Legs:
        """The lengths of the legs, as compiled functions take them."""
        left, lateral = np.array([-1.0, 1.0, -1.0, 1.0]), np.array(self.lateral)
        thigh, shank = (
            (float(np.hypot(down, back)), float(np.arctan2(back, down)))
            for down, back in (self.thigh, self.shank)
        )
        hips, turns = np.array(self.hips), np.array(self.turns)
        return Legs(hips, turns, lateral, left * lateral, *thigh, *shank, self.foot_radius)

    @property
    def model_path(self) -> Path:
        """MuJoCo's model."""
        own = Path(str(files("robopolicy.assets"))) / self.model
        return own if own.is_file() else Path(self.model)

    @property
    def urdf_path(self) -> str:
        """Bullet's model, as Bullet finds it."""
        own = Path(str(files("robopolicy.assets"))) / self.urdf
        return str(own) if own.is_file() else self.urdf

    @property
    def leg(self) -> float:
        """Length of a stretched leg, from hip to toe (m)."""
        return math.hypot(*self.thigh) + math.hypot(*self.shank)

    def standing_joints(self, height: float) -> Array:
        """Joint angles [12] (rad) with every toe below its hip and the base at `height` (m)."""
        legs = self.legs
        down = np.full(4, legs.foot_radius - height)
        toes = np.stack([legs.hips[:, 0], legs.hips[:, 1] + legs.plane, down], axis=1)
        return np.asarray(joint_angles(legs, toes)).ravel()


def _numbers(value: Any) -> list[float]:
    """All numbers in a field of `asdict`."""
    if isinstance(value, dict | list | tuple):
        parts = value.values() if isinstance(value, dict) else value
        return [number for part in parts for number in _numbers(part)]
    return [value] if isinstance(value, int | float) else []
