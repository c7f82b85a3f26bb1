"""The low level: a trot whose swing legs follow positions and whose stance legs follow an MPC.

It keeps the heading and the middle of the row by itself; what it leaves to a policy is where along x
each foot lands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, BodyState, Physics
from robopolicy.envs.quadruped.gait import Trot, TrotConfig, cycle, standing
from robopolicy.envs.quadruped.kinematics import (
    FOOT_RADIUS,
    HIPS,
    LEG_PLANE,
    foot_positions,
    jacobians,
    joint_angles,
)
from robopolicy.envs.quadruped.stance import ConvexMPC, StanceConfig
from robopolicy.envs.quadruped.swing import SwingConfig, path, raibert_offset


@dataclass(frozen=True)
class WalkerConfig:
    """Speeds in m/s, lengths in metres, times in seconds."""

    speed: float = 0.6  # commanded; the robot walks at about 0.5
    ramp: float = 0.5  # time to reach it
    height: float = 0.42  # of the base over the stones
    centring: float = 1.0  # sideways speed for each metre off the middle, 1/s
    heading: float = 5.0  # yaw rate for each radian off the heading, 1/s
    control_period: float = 0.01
    replan_every: int = 3  # control periods between two plans of the MPC
    gait: TrotConfig = field(default_factory=TrotConfig)
    swing: SwingConfig = field(default_factory=SwingConfig)
    stance: StanceConfig = field(default_factory=StanceConfig)


def standing_joints(height: float) -> Array:
    """Joint angles [12] (rad) with every toe right below its hip and the base `height` metres up."""
    return joint_angles(_below_hips(height)).ravel()


def _below_hips(height: float) -> Array:
    return np.stack([HIPS[:, 0], HIPS[:, 1] + LEG_PLANE, np.full(4, FOOT_RADIUS - height)], axis=1)


class Reading:
    """One reading of the robot, as controllers and observations want it (yaw frame: x ahead, z up).

    position [3] and feet_world [4, 3] (m, world); attitude [3]: roll, pitch, yaw (rad); to_yaw and
    base_to_yaw [3, 3]: from world and base to yaw frame; velocity [3] (m/s) and angular_velocity [3] (rad/s),
    yaw frame; feet and hips [4, 3] (m) relative to the base, yaw frame; joints [4, 3] (rad).
    """

    def __init__(self, state: BodyState) -> None:
        self.position = state.position
        self.joints = state.joint_positions.reshape(4, 3)
        (
            self.attitude,
            self.to_yaw,
            self.base_to_yaw,
            self.velocity,
            self.angular_velocity,
            self.feet,
            self.hips,
            self.feet_world,
        ) = _read(state.position, state.rotation, state.linear_velocity, state.angular_velocity, self.joints)


@numba.njit(cache=True)
def _turned(rotation: Array, vectors: Array) -> Array:
    """rotation @ v for every row v of `vectors` [N, 3]."""
    out = np.empty_like(vectors)
    for i in range(len(vectors)):
        for a in range(3):
            row, v = rotation[a], vectors[i]
            out[i, a] = row[0] * v[0] + row[1] * v[1] + row[2] * v[2]
    return out


@numba.njit(cache=True)
def _read(
    position: Array, rotation: Array, linear: Array, angular: Array, joints: Array
) -> tuple[Array, ...]:
    attitude = np.array(
        [
            np.arctan2(rotation[2, 1], rotation[2, 2]),
            -np.arcsin(min(max(rotation[2, 0], -1.0), 1.0)),
            np.arctan2(rotation[1, 0], rotation[0, 0]),
        ]
    )
    c, s = np.cos(attitude[2]), np.sin(attitude[2])
    to_yaw = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    base_to_yaw = _turned(to_yaw, rotation.T.copy()).T.copy()
    velocities = np.empty((2, 3))
    velocities[0], velocities[1] = linear, angular
    velocities = _turned(to_yaw, velocities)
    feet = _turned(base_to_yaw, foot_positions(joints))
    return (
        attitude,
        to_yaw,
        base_to_yaw,
        velocities[0],
        velocities[1],
        feet,
        _turned(base_to_yaw, HIPS),
        position + _turned(to_yaw.T, feet),
    )


class Walker:
    """Runs the gait. `offsets` [4] (m) shift each foot's landing point and are latched at its lift-off."""

    def __init__(self, config: WalkerConfig) -> None:
        self.config = config
        self.trot = Trot(config.gait)
        self._mpc: ConvexMPC | None = None

    def reset(self, physics: Physics) -> None:
        """Start at time 0 from the pose that `physics` is in."""
        mass, self._center, inertia = physics.mass_properties()
        if self._mpc is None:
            self._mpc = ConvexMPC(mass, inertia, self.config.stance)
        self._mpc.reset()
        self.physics = physics
        self.tick = 0
        self.offsets = np.zeros(4)
        self.reading = Reading(physics.state())
        self.landings = self.reading.feet_world.copy()  # world targets of the present or last swing
        self._lift_offs = self.reading.feet_world.copy()
        self._standing = np.ones(4, bool)
        self._forces = np.zeros((4, 3))
        self.ground = 0.0  # height of what the standing feet stand on, m

    @property
    def time(self) -> float:
        """Seconds since the reset."""
        return self.tick * self.config.control_period

    def desired_velocity(self) -> Array:
        """Commanded velocity of the base, [2] (m/s), yaw frame."""
        ahead = self.config.speed * min(1.0, self.time / self.config.ramp)
        return np.array([ahead, -self.config.centring * self.reading.position[1]])

    def nominal_landings(self) -> Array:
        """Where each foot would land if it lifted off now without an offset, [4] (m along x from its hip).

        For a foot in the air: where it is going to land.
        """
        return np.where(self._standing, self._ahead(), self.landings[:, 0] - self.hips_world()[:, 0])

    def hips_world(self) -> Array:
        """The abduction joints, [4, 3] (m, world)."""
        reading = self.reading
        return reading.position + reading.hips @ reading.to_yaw

    def _ahead(self) -> float:
        """How far ahead of its hip a foot that lifts off now is going to land, m."""
        trot, speed = self.trot, self.reading.velocity[0]
        wanted, capture = self.desired_velocity()[0], self.config.swing.capture
        return float(raibert_offset(speed, wanted, trot.swing, trot.stance, capture))

    def lifting(self) -> NDArray[np.bool_]:
        """Which feet lift off in the next control period, [4]."""
        return self._standing & ~self.trot.standing(self.time)

    def advance(self) -> NDArray[np.bool_]:
        """One control period. Returns which feet touched down by schedule in it, [4]."""
        reading, config, trot = self.reading, self.config, self.trot
        stands, touched, lifting, changed, height = _scheduled(
            self.time, trot.period, trot.swing, self._standing, reading.feet_world
        )
        if changed:
            self._lift(lifting)
        replan = changed or self.tick % config.replan_every == 0
        self._standing = stands
        self.ground = height - FOOT_RADIUS
        desired = self.desired_velocity()
        if replan:
            self._forces = self._plan(desired)
        torques = _stance_torques(reading.joints, reading.base_to_yaw, self._forces)
        targets = _swing_joints(
            stands,
            # The target is for the end of this control period.
            cycle(self.time, trot.period) + config.control_period,
            reading.position,
            reading.velocity,
            desired,
            reading.to_yaw,
            reading.base_to_yaw,
            reading.hips,
            self._lift_offs,
            self.landings,
            np.array([trot.swing, trot.stance, config.swing.capture, config.swing.apex]),
            self.ground + FOOT_RADIUS - config.swing.touchdown_press,
        )
        self.physics.command(targets.ravel(), torques.ravel(), np.repeat(~stands, 3))
        self.physics.step()
        self.tick += 1
        self.reading = Reading(self.physics.state())
        return np.asarray(touched)

    def _lift(self, lifting: NDArray[np.bool_]) -> None:
        self._lift_offs[lifting] = self.reading.feet_world[lifting]
        self.landings[lifting, 0] = (self.hips_world()[:, 0] + self._ahead() + self.offsets)[lifting]

    def _plan(self, desired: Array) -> Array:
        assert self._mpc is not None
        reading, config = self.reading, self.config
        center = reading.base_to_yaw @ self._center
        schedule, feet = _planned_steps(
            self.time,
            config.stance.step_period,
            config.stance.steps,
            self.trot.period,
            self.trot.swing,
            self._standing,
            reading.feet - center,
            _turned(reading.to_yaw, self.landings - reading.position) - center,
            desired,
        )
        yaw_rate = -config.heading * reading.attitude[2]
        pose = np.array([*reading.attitude[:2], 0.0, 0.0, 0.0, reading.position[2] + center[2]])
        spin = reading.angular_velocity
        velocity = reading.velocity + _cross(spin, center)
        return self._mpc.forces(
            pose=pose,
            rates=np.concatenate((spin, velocity)),
            desired_rates=np.array([0.0, 0.0, yaw_rate, *desired, 0.0]),
            height=self.ground + config.height + self._center[2],
            feet=feet,
            standing=schedule,
        )


@numba.njit(cache=True)
def _scheduled(
    time: float, period: float, swing: float, stood: NDArray[np.bool_], feet: Array
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_], bool, float]:
    """Which legs stand, touch down, lift off, [4] each; whether any changes; mean height of standing feet."""
    stands = standing(time, period, swing)
    height = 0.0
    for leg in range(4):
        if stands[leg]:
            height += feet[leg, 2]
    return stands, stands & ~stood, stood & ~stands, (stands != stood).any(), height / stands.sum()


@numba.njit(cache=True)
def _cross(a: Array, b: Array) -> Array:
    return np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]])


@numba.njit(cache=True)
def _stance_torques(joints: Array, base_to_yaw: Array, forces: Array) -> Array:
    """Joint torques [4, 3] (N m) by which the feet push the ground with -`forces` [4, 3] (N, yaw frame)."""
    gradients = jacobians(joints)
    pushes = _turned(base_to_yaw.T, forces)
    torques = np.zeros((4, 3))
    for leg in range(4):
        for joint in range(3):
            for axis in range(3):
                torques[leg, joint] -= gradients[leg, axis, joint] * pushes[leg, axis]
    return torques


@numba.njit(cache=True)
def _swing_joints(
    stands: NDArray[np.bool_],
    since_lift_off: Array,
    position: Array,
    velocity: Array,
    desired: Array,
    to_yaw: Array,
    base_to_yaw: Array,
    hips: Array,
    lift_offs: Array,
    landings: Array,
    times: Array,
    landing_height: float,
) -> Array:
    """Joint targets [4, 3]; only those of swinging legs mean anything. Brings their `landings` up to date.

    times: seconds of swing and of stance, seconds of capture, and the apex (m).
    """
    swing, stance, capture, apex = times
    targets = hips.copy()
    targets[:, 2] -= 0.3
    for leg in range(4):
        if stands[leg]:
            continue
        left = max(0.0, swing - since_lift_off[leg])
        aside = raibert_offset(velocity[1], desired[1], left, stance, capture)
        beside = np.array([hips[leg, 0], hips[leg, 1] + LEG_PLANE[leg] + aside, 0.0])
        landings[leg, 1] = position[1] + to_yaw[0, 1] * beside[0] + to_yaw[1, 1] * beside[1]
        landings[leg, 2] = landing_height
        point = path(lift_offs[leg], landings[leg], min(1.0, since_lift_off[leg] / swing), apex)
        targets[leg] = point - position
    base_targets = _turned(base_to_yaw.T, _turned(to_yaw, targets))
    return joint_angles(base_targets)


@numba.njit(cache=True)
def _planned_steps(
    time: float,
    step: float,
    steps: int,
    period: float,
    swing: float,
    stands: NDArray[np.bool_],
    feet: Array,
    landings: Array,
    desired: Array,
) -> tuple[NDArray[np.bool_], Array]:
    """Which legs stand, [steps, 4], and where, [steps, 4, 3], relative to a base that moves on as desired.

    A foot that stands later than now is planned at its landing point.
    """
    schedule, places = np.empty((steps, 4), np.bool_), np.empty((steps, 4, 3))
    for k in range(steps):
        schedule[k] = stands if k == 0 else standing(time + k * step, period, swing)
        for leg in range(4):
            places[k, leg] = feet[leg] if stands[leg] else landings[leg]
            places[k, leg, 0] -= k * step * desired[0]
            places[k, leg, 1] -= k * step * desired[1]
    return schedule, places
