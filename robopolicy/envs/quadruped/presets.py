"""The settings of the stepping stones, by the names of its presets, and what an episode draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from robopolicy.control.odometry import OdometryConfig
from robopolicy.control.proprioception import LATERAL_PROPRIOCEPTION, PROPRIOCEPTION
from robopolicy.control.robot import CameraConfig, Robot, WalkerConfig
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.members import Description
from robopolicy.envs.quadruped import description
from robopolicy.envs.quadruped.body_sensors import BodySensorConfig
from robopolicy.envs.quadruped.cameras import PLACES, cameras_of
from robopolicy.envs.quadruped.difficulty import DisturbanceConfig, Disturbances, SensorConfig, Sensors
from robopolicy.envs.quadruped.terrain import ScatteredConfig, Terrain, TerrainConfig, drawn_terrain
from robopolicy.envs.simulated import LONGEST_EPISODE
from robopolicy.naming import one_of
from robopolicy.settings import check_fields, check_number, check_types

LEGS = 0.112, 1.006  # m, for which all lengths of the presets are in their ranges


@dataclass(frozen=True)
class RewardConfig:
    """The reward of a step. Progress is in metres, so that a full crossing earns about its length."""

    progress: float = 1.0  # earned for each metre ahead
    edge: float = 0.15  # lost for a touchdown over a gap; rises from 0 at `edge_margin`
    edge_margin: float = 0.03  # m
    effort: float = 0.08  # lost for each metre of foothold offset, at lift-off
    fall: float = 3.0  # lost once, if the episode ends before the goal by anything but time

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(name, value, 1e-6 if name == "edge_margin" else -1e6, 1e6)


@dataclass(frozen=True)
class SteppingStonesConfig:
    """The whole task. Times in seconds, lengths in metres, angles in radians."""

    robot: Robot = LAIKAGO
    terrain: TerrainConfig = field(default_factory=TerrainConfig)
    walker: WalkerConfig = field(default_factory=WalkerConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    disturbances: DisturbanceConfig = field(default_factory=DisturbanceConfig)
    sensors: SensorConfig = field(default_factory=SensorConfig)
    policy_period: float = 0.05
    largest_offset: float = 0.15  # of a foothold, for an action of one
    largest_aside: float = 0.0  # the same to the left; 0 for actions without this part
    episode_seconds: float = 20.0
    lowest_base: float = 0.28  # over what it stands on; below it the robot has fallen
    largest_tilt: float = 0.6  # roll or pitch
    deepest_foot: float = 0.06  # toe below the lowest stone: a foot in a gap
    widest_drift: float = 0.25  # of the base from the middle
    cameras: tuple[str, ...] = PLACES
    odometry: OdometryConfig | None = None  # None for an observation without it
    body_sensors: BodySensorConfig | None = None  # None for a low level that knows the true state

    def __post_init__(self) -> None:
        read = {name: getattr(self, name) for name in ("walker", "body_sensors")}  # before `check_fields`
        check_types("SteppingStonesConfig", read, SteppingStonesConfig)
        period = self.walker.control_period
        check_number("policy_period", self.policy_period, period, 1.0)
        if abs(self.policy_period / period - round(self.policy_period / period)) > 1e-9:
            raise ValueError(
                f"policy_period is {self.policy_period}: it must be a multiple of control_period, {period}"
            )
        half = self.walker.gait.period / 2
        if abs(half / self.policy_period - round(half / self.policy_period)) > 1e-9:
            raise ValueError(
                f"policy_period is {self.policy_period}: half the gait's period, {half:g}, must be a "
                "multiple of it, so that feet lift off at its steps"
            )
        if self.body_sensors is not None:
            check_number("delay", self.body_sensors.delay, 0.0, period)
        check_number("largest_offset", self.largest_offset, 0.01, 0.3)
        check_number("largest_aside", self.largest_aside, 0.01 if self.largest_aside else 0.0, 0.3)
        check_number("episode_seconds", self.episode_seconds, self.policy_period, LONGEST_EPISODE)
        for name in ("lowest_base", "largest_tilt", "deepest_foot", "widest_drift"):
            if getattr(self, name) != getattr(self, name):  # infinity switches an end off
                raise ValueError(f"{name} is nan: it must be a number")
        named = isinstance(self.cameras, tuple | list) and all(camera in PLACES for camera in self.cameras)
        if not (named and 0 < len(set(self.cameras)) == len(self.cameras)):
            names = ", ".join(PLACES)
            raise ValueError(f"cameras is {self.cameras!r}: it must name one or more of {names}, each once")
        check_fields(self)
        self.robot.check_stands("walker", self.walker.height)

    @property
    def images(self) -> dict[str, CameraConfig]:
        """The cameras by the name of their images."""
        return cameras_of(self.cameras, self.robot)

    def seen_by(self, cameras: tuple[str, ...] | None, drift: float | None = None) -> SteppingStonesConfig:
        """The same task with these cameras; with fewer than both, the robot has odometry.

        `drift` is that of `OdometryConfig`. Raises ValueError for odometry or its drift with both cameras.
        """
        config = self
        if cameras is not None:
            if not isinstance(cameras, tuple | list):
                raise ValueError(f"cameras is {cameras!r}: it must be a tuple of names")
            for camera in cameras:
                one_of("cameras", camera, PLACES)
            fewer = set(cameras) != set(PLACES)
            if self.odometry and not fewer:
                raise ValueError(f"cameras is {cameras!r}: with odometry, it must be front or belly alone")
            odometry = self.odometry or (OdometryConfig() if fewer else None)
            config = replace(self, cameras=tuple(cameras), odometry=odometry)
        if drift is None:
            return config
        if config.odometry is None:
            raise ValueError(f"drift is {drift}: the robot has odometry with the front or belly camera alone")
        return replace(config, odometry=replace(config.odometry, drift=drift))


def presets_of(robot: Robot) -> dict[str, SteppingStonesConfig]:
    """The presets for `robot`, by name.

    What a step must fit is in units of the robot's leg: stones, gaps and steps in height, offsets and the
    margin to edges. Payloads are in units of its mass. The length and the width of a course, and the depth of
    its gaps, are not. Between the gaps of a small robot, stones turn less.

    Raises ValueError, in one line, for a leg outside of `LEGS`.
    """
    check_number(f"{robot}: the length of its leg", robot.leg, *LEGS)
    leg, mass = robot.leg / LAIKAGO.leg, robot.mass / LAIKAGO.mass

    def lengths(low: float, high: float) -> tuple[float, float]:
        return low * leg, high * leg

    def stones(
        length: tuple[float, float] = (0.5, 0.8),
        gap: tuple[float, float] = (0.10, 0.20),
        yaw: float = 0.0,
        **more: Any,
    ) -> TerrainConfig:
        first, gaps = lengths(0.45, 0.80), lengths(*gap)
        yaw = min(yaw, math.atan(gaps[0] / TerrainConfig.width))  # turned stones must not overlap
        return TerrainConfig(length=lengths(*length), gap=gaps, first_edge=first, yaw=yaw, **more)

    scattered = ScatteredConfig(
        length=lengths(0.15, 0.25),
        gap=lengths(0.08, 0.15),
        breadth=lengths(0.15, 0.25),
        aside=lengths(0.08, 0.15),
        first_edge=lengths(0.45, 0.80),
    )
    paper = SteppingStonesConfig(
        robot=robot,
        terrain=stones(),
        walker=robot.walker,
        reward=RewardConfig(edge_margin=0.03 * leg),
        largest_offset=0.15 * leg,
        lowest_base=robot.lowest_base,
        deepest_foot=0.06 * leg,
    )
    sparse = replace(paper, terrain=scattered, largest_aside=0.1 * leg)
    dirty = SensorConfig(noise=0.01, blobs=4, legs=True)
    return {
        "paper": paper,
        "painted": replace(paper, terrain=stones(painted=True, goal=4.0)),
        "dust": replace(paper, sensors=dirty),
        "dust-thick": replace(paper, sensors=SensorConfig(noise=0.02, blobs=10, legs=True)),
        "hard": replace(
            paper,
            terrain=stones((0.45, 0.75), (0.12, 0.25), height_step=0.04 * leg, yaw=0.1),
            disturbances=DisturbanceConfig(
                friction=(0.5, 1.0), payload=(0.0, 3.0 * mass), motor_strength=(0.9, 1.1), push=0.2
            ),
            sensors=SensorConfig(noise=0.005, dropout=0.01, latency=0.02, mount_shift=0.005, mount_tilt=1.0),
            walker=robot.rugged,
        ),
        "extreme": replace(
            paper,
            terrain=stones((0.4, 0.65), (0.15, 0.30), height_step=0.07 * leg, yaw=0.2),
            disturbances=DisturbanceConfig(
                friction=(0.4, 1.0), payload=(0.0, 6.0 * mass), motor_strength=(0.8, 1.1), push=0.3
            ),
            sensors=SensorConfig(noise=0.01, dropout=0.05, latency=0.04, mount_shift=0.01, mount_tilt=2.0),
            walker=robot.rugged,
        ),
        "front": replace(paper, cameras=("front",), odometry=OdometryConfig()),
        "sensors": replace(paper, body_sensors=BodySensorConfig()),
        "sparse": sparse,
        "sparse-dirty": replace(sparse, sensors=replace(dirty, mount_tilt=4.0)),
    }


PRESETS = presets_of(LAIKAGO)


def default_policy(config: SteppingStonesConfig) -> Description:
    """The policy that is trained by default."""
    reach = (config.largest_offset, config.largest_aside)[: 1 + bool(config.largest_aside)]
    first, *_ = config.images.values()
    return {
        **({"odometry": tuple(q.name for q in description.ODOMETRY)} if config.odometry else {}),
        "kind": "iap",
        "image": (first.height, first.width),
        "proprioception": LATERAL_PROPRIOCEPTION if config.largest_aside else PROPRIOCEPTION,
        "footholds": description.reading(config.robot, config.walker.height, reach, config.images),
    }


class Draw(NamedTuple):
    """What an episode draws."""

    terrain: Terrain
    disturbances: Disturbances
    sensors: Sensors


def draw(config: SteppingStonesConfig, rng: np.random.Generator) -> Draw:
    """Draw an episode."""
    return Draw(
        drawn_terrain(config.terrain, rng),
        Disturbances(config.disturbances, config.robot.mass, config.episode_seconds, rng),
        Sensors(config.images, config.sensors, config.walker.control_period, rng),
    )
