"""What the low level knows of a simulated robot: its true state, or an estimate by faulty sensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robopolicy.control.estimate import RESTING, Sensed, StateEstimator
from robopolicy.control.robot import Robot
from robopolicy.control.stance import GRAVITY
from robopolicy.envs.physics.base import Array, BodyState
from robopolicy.settings import check_number

GEAR = 6.33  # of Unitree's GO-M8010-6, which reads 15 bits a turn and 256 steps a turn/s before its gear


@dataclass(frozen=True)
class BodySensorConfig:
    """Faults of the IMU and of the joints' sensors; docs/control.md gives their sources.

    A bias or an offset is one normal draw for each axis or joint and episode; a noise is a new one for each
    control period. All but the steps and the delay are standard deviations.

    Attributes:
      accelerometer_noise, accelerometer_bias: m/s^2, of the mean of a control period.
      gyroscope_noise, gyroscope_bias: rad/s; the bias is what a calibration at rest leaves.
      joint_offset, joint_step: rad, of the zero of a joint and of its encoder.
      rate_noise, rate_step: rad/s, of a joint's velocity.
      delay: s, age of all readings at the end of a control period.
    """

    accelerometer_noise: float = 0.025
    accelerometer_bias: float = 0.1
    gyroscope_noise: float = 0.0035
    gyroscope_bias: float = 0.0008
    joint_offset: float = 0.005
    joint_step: float = 2 * math.pi / 2**15 / GEAR
    rate_noise: float = 0.05
    rate_step: float = 2 * math.pi / 256 / GEAR
    delay: float = 0.002

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            # An estimate refuses to begin with a larger bias than RESTING.
            check_number(name, value, 0.0, RESTING / 5 if name == "accelerometer_bias" else 1.0)


class BodySensors:
    """The IMU and the joints' sensors of one episode.

    `offsets` [12] (rad): how much more than their angle the joints read.
    """

    def __init__(self, config: BodySensorConfig, period: float, rng: np.random.Generator) -> None:
        """`period` (s) is a control period; it is not shorter than the delay."""
        self._config, self._period, self._rng = config, period, rng
        self._accelerometer = config.accelerometer_bias * rng.standard_normal(3)
        self._gyroscope = config.gyroscope_bias * rng.standard_normal(3)
        self.offsets = config.joint_offset * rng.standard_normal(12)
        # Where the accelerometer's bias looks like gravity, the IMU takes it for a tilt.
        x, y, _ = self._accelerometer / -GRAVITY
        self._tilt = Rotation.from_rotvec([y, -x, 0.0])
        self._yaw = 0.0
        self._before: BodyState | None = None
        self._delayed: BodyState | None = None

    def read(self, state: BodyState) -> Sensed:
        """What the sensors read at the end of a control period, in `state`.

        At the first call the robot has been at rest.
        """
        config, rng = self._config, self._rng
        if self._before is None or self._delayed is None:
            self._before = self._delayed = state
        share = config.delay / self._period
        now = BodyState(*(b + (1 - share) * (s - b) for s, b in zip(state, self._before, strict=True)))
        turn = Rotation.from_matrix(state.rotation)
        rotation = Rotation.from_rotvec(-config.delay * state.angular_velocity) * turn
        gained = (now.linear_velocity - self._delayed.linear_velocity) / self._period
        self._before, self._delayed = state, now
        fault = self._gyroscope + config.gyroscope_noise * rng.standard_normal(3)
        gyroscope = rotation.inv().apply(now.angular_velocity) + fault
        self._yaw += self._period * fault[2]
        accelerometer = rotation.inv().apply(gained - np.array([0.0, 0.0, GRAVITY])) + self._accelerometer
        accelerometer += config.accelerometer_noise * rng.standard_normal(3)
        x, y, z, w = (Rotation.from_rotvec([0.0, 0.0, self._yaw]) * rotation * self._tilt).as_quat()
        rates = now.joint_velocities + config.rate_noise * rng.standard_normal(12)
        return Sensed(
            np.array([w, x, y, z]),
            gyroscope,
            accelerometer,
            _stepped(now.joint_positions + self.offsets, config.joint_step),
            _stepped(rates, config.rate_step),
        )


class TrueState:
    """Knows the true state."""

    def begin(self, state: BodyState) -> BodyState:
        """What is known at the start of an episode in `state`."""
        return state

    def follow(self, state: BodyState, standing: NDArray[np.bool_]) -> BodyState:
        """What is known at the end of a control period in `state`, in which the feet `standing` [4] stood."""
        return state

    def targets(self, positions: Array) -> Array:
        """Where the joints go that are commanded to `positions` [12] (rad)."""
        return positions


class SensedState(TrueState):
    """Estimates the state by `sensors`."""

    def __init__(self, robot: Robot, sensors: BodySensors, period: float) -> None:
        """`period` (s) is a control period."""
        self._sensors = sensors
        self._estimator = StateEstimator(robot, period=period)

    def begin(self, state: BodyState) -> BodyState:
        """As `TrueState`; the robot is at rest."""
        return self._estimator.reset(self._sensors.read(state))

    def follow(self, state: BodyState, standing: NDArray[np.bool_]) -> BodyState:
        """As `TrueState`."""
        return self._estimator.update(self._sensors.read(state), standing)

    def targets(self, positions: Array) -> Array:
        """As `TrueState`: a servo follows its own sensor."""
        return positions - self._sensors.offsets


def _stepped(values: Array, step: float) -> Array:
    """`values`, rounded to multiples of `step`; 0 rounds nothing."""
    return step * np.round(values / step) if step else values
