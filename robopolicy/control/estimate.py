"""The state of a robot by what its sensors read: a Kalman filter over the base and the feet.

The linear filter of Bledt et al. 2018, "MIT Cheetah 3". Its state is the place and the velocity of the base,
and the places of the feet, which stay while they stand (Bloesch et al. 2012, "State estimation for legged
robots: consistent fusion of leg kinematics and IMU"). The IMU's orientation is taken as true, so the axes do
not mix, and with the same noise along each they share one covariance. Unlike in the paper, no foot is assumed
to be at the height 0, and feet roll.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.commands import foot_velocities
from robopolicy.control.kinematics import Legs, jacobians
from robopolicy.control.reading import Reading, read, turned
from robopolicy.control.robot import Robot
from robopolicy.control.stance import GRAVITY
from robopolicy.control.state import Array, BodyState, checked
from robopolicy.settings import check_number

PLACE, SPEED, FEET = 0, 1, 2  # entries of the filter's state along each axis; FEET is the first of four
RESTING = 1.0  # m/s^2, largest difference from gravity that an accelerometer at rest has by its bias
START_SPEED = 0.1  # m/s, standard deviation of the speed of a base at rest


class Sensed(NamedTuple):
    """What the sensors of a robot read at the end of a control period.

    Attributes:
      orientation: of the base by the IMU, a quaternion [4] (w, x, y, z), to a frame with z up.
      gyroscope: [3] (rad/s), base axes.
      accelerometer: [3] (m/s^2), base axes, mean of the control period; at rest 9.81 upwards.
      joint_positions, joint_velocities: [12] (rad) and [12] (rad/s).
    """

    orientation: Array
    gyroscope: Array
    accelerometer: Array
    joint_positions: Array
    joint_velocities: Array


@dataclass(frozen=True)
class EstimatorConfig:
    """Standard deviations that the filter assumes, along each axis.

    Attributes:
      acceleration: of the accelerometer's mean in a control period, bias included (m/s^2).
      slip: of a standing foot in a second (m); it grows with the root of the time.
      reach, reach_rate: of a foot relative to the base (m) and of its velocity (m/s), by the joints.
      settling: seconds after touchdown in which a foot tells nothing, since it slides or bounces.
    """

    acceleration: float = 0.5
    slip: float = 0.005
    reach: float = 0.003
    reach_rate: float = 0.1
    settling: float = 0.05

    def __post_init__(self) -> None:
        for name in ("acceleration", "slip", "reach", "reach_rate"):
            check_number(name, getattr(self, name), 1e-6, 100.0)
        check_number("settling", self.settling, 0.0, 1.0)


class StateEstimator:
    """Estimates the state of a robot from its start on.

    The world has its origin on the ground below the start of the base, x ahead of it and z up. The place and
    the yaw of the base drift, as no sensor reads them.
    """

    def __init__(
        self, robot: Robot, config: EstimatorConfig | None = None, period: float | None = None
    ) -> None:
        """`period` (s) is the time between two updates, the control period of the robot by default."""
        self.config = config = config or EstimatorConfig()
        self._legs = robot.legs
        self._period = robot.walker.control_period if period is None else period
        check_number("period", self._period, 1e-4, 0.1)
        self._noise = np.array([config.acceleration, config.slip, config.reach, config.reach_rate])
        self._is_reset = False

    def reset(self, sensed: Sensed, ahead: float | None = None) -> BodyState:
        """Start at rest, with all feet on level ground, and return the state.

        What the accelerometer reads now is gravity, bias included. `ahead` is the yaw (rad) by the IMU that
        counts as 0: that of now by default. Raises ValueError as `update`, for an accelerometer that reads
        another gravity than `RESTING` allows, and for an `ahead` that is no number.
        """
        sensed = _checked(sensed)
        if ahead is not None:
            check_number("ahead", ahead, -1e6, 1e6)
        gravity = float(np.linalg.norm(sensed.accelerometer))
        if abs(gravity + GRAVITY) > RESTING:
            raise ValueError(
                f"accelerometer reads {gravity:.3g} m/s^2: it must be within {RESTING:g} of 9.81 at rest"
            )
        self._gravity = gravity
        yaw = self.yaw(sensed) if ahead is None else ahead
        self._heading = np.array([np.cos(yaw), -np.sin(yaw)])
        state: BodyState = _at_origin(sensed, self._heading)
        reading = read(state, self._legs)
        self._mean, self._covariance = np.zeros((6, 3)), np.zeros((6, 6))
        self._mean[PLACE, 2] = self._legs.foot_radius - reading.feet[:, 2].mean()
        self._mean[FEET:] = self._mean[PLACE] + _contacts(self._legs, reading)[0]
        self._covariance[SPEED, SPEED] = START_SPEED**2
        self._covariance[range(FEET, 6), range(FEET, 6)] = self.config.reach**2
        self._stood = np.full(4, np.inf)  # s since touchdown
        self._is_reset = True
        return state._replace(position=self._mean[PLACE].copy())

    def yaw(self, sensed: Sensed) -> float:
        """The yaw (rad) of the base by the IMU."""
        return float(read(_at_origin(_checked(sensed), np.array([1.0, 0.0])), self._legs).attitude[2])

    def update(self, sensed: Sensed, standing: NDArray[np.bool_]) -> BodyState:
        """The state at the end of a control period, in which the feet `standing` [4] stood.

        `standing` is that of contact sensors, or of the gait's schedule (`~controller.swinging`).

        Raises RuntimeError before the first `reset`, and ValueError, without a change, for arrays of another
        shape or type, numbers that are not finite, and an orientation that is no rotation.
        """
        if not self._is_reset:
            raise RuntimeError("call reset before update")
        sensed = _checked(sensed)
        if np.shape(standing) != (4,):
            raise ValueError(f"standing has the shape {list(np.shape(standing))}: it must be [4]")
        standing = np.asarray(standing)
        if standing.dtype != bool:
            raise ValueError(f"standing has the type {standing.dtype}: it must be bool")
        self._stood[standing] += self._period
        self._stood[~standing] = 0.0
        settled = standing & (self._stood > self.config.settling + 1e-9)
        state: BodyState = _advance(
            self._legs,
            sensed,
            self._heading,
            self._mean,
            self._covariance,
            settled,
            self._gravity,
            self._period,
            self._noise,
        )
        return state


def _checked(sensed: Sensed) -> Sensed:
    """A copy of the readings. Raises ValueError as `update` says."""
    sensed = Sensed(*(checked(name, getattr(sensed, name), (size,)) for name, size in _SIZES.items()))
    norm = float(np.linalg.norm(sensed.orientation))
    if abs(norm - 1.0) > 0.1:
        raise ValueError(f"orientation has the norm {norm:.3g}: it must be a quaternion of norm 1")
    return sensed


_SIZES = {
    "orientation": 4,
    "gyroscope": 3,
    "accelerometer": 3,
    "joint_positions": 12,
    "joint_velocities": 12,
}


@numba.njit(cache=True)
def _advance(
    legs: Legs,
    sensed: Sensed,
    heading: Array,
    mean: Array,
    covariance: Array,
    settled: NDArray[np.bool_],
    gravity: float,
    period: float,
    noise: Array,
) -> BodyState:
    """The state after a control period; see `_at_origin` and `_filter` for the arguments."""
    state = _at_origin(sensed, heading)
    felt = turned(state.rotation, sensed.accelerometer.reshape(1, 3))[0]
    places, velocities = _contacts(legs, read(state, legs))
    _filter(mean, covariance, felt, places, velocities, settled, gravity, period, noise)
    return BodyState(
        mean[PLACE].copy(),
        state.rotation,
        mean[SPEED].copy(),
        state.angular_velocity,
        state.joint_positions,
        state.joint_velocities,
    )


@numba.njit(cache=True)
def _at_origin(sensed: Sensed, heading: Array) -> BodyState:
    """What the sensors read, as the state of a base that rests in the origin, but for its rotation.

    heading: cosine and sine of the turn about z that takes the IMU's world to ours.
    """
    w, x, y, z = sensed.orientation / np.sqrt((sensed.orientation**2).sum())
    by_imu = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    c, s = heading
    rotation = by_imu.copy()
    rotation[0], rotation[1] = c * by_imu[0] - s * by_imu[1], s * by_imu[0] + c * by_imu[1]
    spin = turned(rotation, sensed.gyroscope.reshape(1, 3))[0]
    joints, rates = sensed.joint_positions.copy(), sensed.joint_velocities.copy()
    return BodyState(np.zeros(3), rotation, np.zeros(3), spin, joints, rates)


@numba.njit(cache=True)
def _contacts(legs: Legs, reading: Reading) -> tuple[Array, Array]:
    """Places (m) and velocities (m/s) of what rests on the ground below each toe, relative to the base.

    Both are [4, 3], in the world's axes. A toe is a ball that rolls with its shank, as in `odometry.anchors`.
    The `reading` is that of a base at rest.
    """
    places = reading.feet.copy()
    velocities = foot_velocities(reading, jacobians(legs, reading.joints))
    roll, pitch, _ = reading.attitude
    for leg in range(4):
        abduction, hip, knee = reading.joints[leg]
        places[leg, 0] -= legs.foot_radius * (pitch + hip + knee)
        places[leg, 1] += legs.foot_radius * (roll + legs.turns[leg] * abduction)
        abduction, hip, knee = reading.rates[leg]
        velocities[leg, 0] -= legs.foot_radius * (reading.angular_velocity[1] + hip + knee)
        velocities[leg, 1] += legs.foot_radius * (reading.angular_velocity[0] + legs.turns[leg] * abduction)
    to_world = reading.to_yaw.T.copy()
    return turned(to_world, places), turned(to_world, velocities)


@numba.njit(cache=True)
def _filter(
    mean: Array,
    covariance: Array,
    felt: Array,
    places: Array,
    velocities: Array,
    settled: NDArray[np.bool_],
    gravity: float,
    period: float,
    noise: Array,
) -> None:
    """Update `mean` [6, 3] and `covariance` [6, 6] in place by a control period.

    felt: [3] (m/s^2), of the accelerometer in the world's axes; gravity: m/s^2. places, velocities: see
    `_contacts`. noise: the numbers of `EstimatorConfig`, but for `settling`.
    """
    acceleration, slip, reach, reach_rate = noise
    for axis in range(3):
        gained = period * (felt[axis] - (gravity if axis == 2 else 0.0))
        mean[PLACE, axis] += period * (mean[SPEED, axis] + gained / 2)
        mean[SPEED, axis] += gained
    covariance[PLACE] += period * covariance[SPEED]
    covariance[:, PLACE] += period * covariance[:, SPEED]
    pushed = acceleration * period
    covariance[PLACE, PLACE] += (pushed * period / 2) ** 2
    covariance[PLACE, SPEED] += pushed**2 * period / 2
    covariance[SPEED, PLACE] += pushed**2 * period / 2
    covariance[SPEED, SPEED] += pushed**2
    direction = np.zeros(6)
    for leg in range(4):
        if not settled[leg]:
            continue
        covariance[FEET + leg, FEET + leg] += slip**2 * period
        direction[:] = 0.0
        direction[SPEED] = -1.0
        _measure(mean, covariance, direction, velocities[leg], reach_rate)
        direction[:] = 0.0
        direction[PLACE], direction[FEET + leg] = -1.0, 1.0
        _measure(mean, covariance, direction, places[leg], reach)
    for leg in range(4):
        if settled[leg]:
            continue
        # A foot that moves is where the base and its joints say.
        foot = FEET + leg
        mean[foot] = mean[PLACE] + places[leg]
        covariance[foot] = covariance[PLACE]
        covariance[:, foot] = covariance[:, PLACE]
        covariance[foot, foot] = covariance[PLACE, PLACE] + reach**2


@numba.njit(cache=True)
def _measure(mean: Array, covariance: Array, direction: Array, value: Array, deviation: float) -> None:
    """The Kalman update by `value` [3] of `direction` [6] times the state, with its standard deviation."""
    shared = np.zeros(6)
    for row in range(6):
        for column in range(6):
            shared[row] += covariance[row, column] * direction[column]
    variance = (direction * shared).sum() + deviation**2
    for axis in range(3):
        missing = (value[axis] - (direction * mean[:, axis]).sum()) / variance
        for row in range(6):
            mean[row, axis] += shared[row] * missing
    for row in range(6):
        for column in range(6):
            covariance[row, column] -= shared[row] * shared[column] / variance
