"""The low level: a trot whose swing legs follow positions and whose stance legs follow an MPC.

It keeps the heading and the middle of the row by itself; what it leaves to a policy is where along x
each foot lands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, BodyState, Physics
from robopolicy.envs.quadruped.gait import Trot, TrotConfig
from robopolicy.envs.quadruped.kinematics import (
    FOOT_RADIUS,
    HIPS,
    LATERAL,
    SIDE,
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
    return np.stack([HIPS[:, 0], HIPS[:, 1] + SIDE * LATERAL, np.full(4, FOOT_RADIUS - height)], axis=1)


def euler(rotation: Array) -> Array:
    """Roll, pitch, yaw (rad) of a rotation matrix [3, 3]."""
    return np.array(
        [
            np.arctan2(rotation[2, 1], rotation[2, 2]),
            -np.arcsin(np.clip(rotation[2, 0], -1.0, 1.0)),
            np.arctan2(rotation[1, 0], rotation[0, 0]),
        ]
    )


class Reading:
    """One reading of the robot, as controllers and observations want it (yaw frame: x ahead, z up)."""

    def __init__(self, state: BodyState) -> None:
        self.position = state.position
        self.attitude = euler(state.rotation)  # roll, pitch, yaw
        c, s = np.cos(self.attitude[2]), np.sin(self.attitude[2])
        self.to_yaw = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])  # world to yaw frame
        self.base_to_yaw = self.to_yaw @ state.rotation
        self.velocity = self.to_yaw @ state.linear_velocity
        self.angular_velocity = self.to_yaw @ state.angular_velocity
        self.joints = state.joint_positions.reshape(4, 3)
        self.feet_base = foot_positions(self.joints)
        self.feet = self.feet_base @ self.base_to_yaw.T  # relative to the base, yaw frame
        self.hips = HIPS @ self.base_to_yaw.T
        self.feet_world = self.position + self.feet @ self.to_yaw


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
        reading, trot = self.reading, self.trot
        offset = raibert_offset(
            reading.velocity[:2], self.desired_velocity(), trot.swing, trot.stance, self.config.swing
        )[0]
        hips_x = reading.position[0] + (reading.hips @ reading.to_yaw)[:, 0]
        return np.where(self._standing, offset, self.landings[:, 0] - hips_x)

    def lifting(self) -> NDArray[np.bool_]:
        """Which feet lift off in the next control period, [4]."""
        return self._standing & ~self.trot.standing(self.time)

    def advance(self) -> NDArray[np.bool_]:
        """One control period. Returns which feet touched down by schedule in it, [4]."""
        standing = self.trot.standing(self.time)
        touched = standing & ~self._standing
        self._lift(self.lifting())
        replan = self.tick % self.config.replan_every == 0 or bool((standing != self._standing).any())
        self._standing = standing
        self.ground = float(self.reading.feet_world[standing, 2].mean()) - FOOT_RADIUS
        if replan:
            self._forces = self._plan()
        torques = -np.einsum(
            "lij,li->lj", jacobians(self.reading.joints), self._forces @ self.reading.base_to_yaw
        )
        self.physics.command(self._swing_joints().ravel(), torques.ravel(), np.repeat(~standing, 3))
        self.physics.step()
        self.tick += 1
        self.reading = Reading(self.physics.state())
        return np.asarray(touched)

    def _lift(self, lifting: NDArray[np.bool_]) -> None:
        if not lifting.any():
            return
        reading, trot = self.reading, self.trot
        ahead = raibert_offset(
            reading.velocity[:2], self.desired_velocity(), trot.swing, trot.stance, self.config.swing
        )[0]
        hips_x = reading.position[0] + (reading.hips @ reading.to_yaw)[:, 0]
        self._lift_offs[lifting] = reading.feet_world[lifting]
        self.landings[lifting, 0] = (hips_x + ahead + self.offsets)[lifting]

    def _swing_joints(self) -> Array:
        """Joint targets [4, 3]; only those of swinging legs are used."""
        reading, trot, config = self.reading, self.trot, self.config
        targets = reading.feet_base.copy()
        # The target is for the end of this control period.
        cycle = trot.cycle(self.time) + config.control_period
        for leg in np.flatnonzero(~self._standing):
            left = max(0.0, trot.swing - cycle[leg])
            aside = raibert_offset(
                reading.velocity[:2], self.desired_velocity(), left, trot.stance, config.swing
            )[1]
            hip = (
                reading.position
                + np.array([*reading.hips[leg, :2] + [0.0, SIDE[leg] * LATERAL[leg] + aside], 0.0])
                @ reading.to_yaw
            )
            height = self.ground + FOOT_RADIUS - config.swing.touchdown_press
            landing = np.array([self.landings[leg, 0], hip[1], height])
            self.landings[leg] = landing
            point = path(self._lift_offs[leg], landing, min(1.0, cycle[leg] / trot.swing), config.swing.apex)
            targets[leg] = reading.base_to_yaw.T @ reading.to_yaw @ (point - reading.position)
        return joint_angles(targets)

    def _plan(self) -> Array:
        assert self._mpc is not None
        reading, config = self.reading, self.config
        steps, period = config.stance.steps, config.stance.step_period
        center = reading.base_to_yaw @ self._center
        speed = self.desired_velocity()
        yaw_rate = -config.heading * reading.attitude[2]
        times = self.time + period * np.arange(steps)
        standing = np.array([self.trot.standing(t) for t in times])
        standing[0] = self._standing
        # A foot that stands later than now is planned at its landing point.
        landings = (self.landings - reading.position) @ reading.to_yaw.T
        travel = period * np.arange(steps)[:, None, None] * np.array([*speed, 0.0])
        feet = np.where(self._standing[:, None], reading.feet, landings) - center - travel
        pose = np.array([*reading.attitude[:2], 0.0, 0.0, 0.0, reading.position[2] + center[2]])
        velocity = reading.velocity + np.cross(reading.angular_velocity, center)
        return self._mpc.forces(
            pose=pose,
            rates=np.array([*reading.angular_velocity, *velocity]),
            desired_rates=np.array([0.0, 0.0, yaw_rate, *speed, 0.0]),
            height=self.ground + config.height + self._center[2],
            feet=feet,
            standing=standing,
        )
