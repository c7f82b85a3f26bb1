"""The low level: a trot with position control of the swing legs and an MPC for the stance legs.

It controls the heading and the lateral position. A policy only shifts the landing point of each foot.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, Physics
from robopolicy.envs.quadruped.control import commands, planned, scheduled
from robopolicy.envs.quadruped.gait import SwingConfig, TrotConfig, raibert_offset, standing
from robopolicy.envs.quadruped.kinematics import FOOT_RADIUS, HIPS, LEG_PLANE, joint_angles
from robopolicy.envs.quadruped.reading import read
from robopolicy.envs.quadruped.stance import ConvexMPC, StanceConfig

# How far a foot lands to the left of straight ahead of its leg's plane (m), from the base's speed (m/s) and
# place (m) to the left, roll (rad) and its rate (rad/s): the trunk sways. Residual of 12 mm.
SWAY = np.array([-0.0861, -0.3329, -0.9704, 0.0345])


@dataclass(frozen=True)
class WalkerConfig:
    """Speeds in m/s, lengths in metres, times in seconds."""

    speed: float = 0.6  # commanded; the robot walks at about 0.5
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


def standing_joints(height: float) -> Array:
    """Joint angles [12] (rad) with every toe below its hip and the base at `height` (m)."""
    toes = np.stack([HIPS[:, 0], HIPS[:, 1] + LEG_PLANE, np.full(4, FOOT_RADIUS - height)], axis=1)
    return joint_angles(toes).ravel()


class Walker:
    """Runs the gait.

    `offsets` [4, 2] (m, ahead and to the left) shift the landing point of each foot. It keeps those of its
    lift-off until it has landed.
    """

    def __init__(self, config: WalkerConfig) -> None:
        self.config = config
        gait, swing = config.gait, config.swing
        self._timing = np.array(
            [gait.period, gait.swing, gait.stance, swing.capture, swing.apex, config.stance.grip]
        )
        self.mpc: ConvexMPC | None = None

    def reset(self, physics: Physics) -> None:
        """Start at time 0 from the pose that `physics` is in."""
        mass, self._center, inertia = physics.mass_properties()
        if self.mpc is None:
            self.mpc = ConvexMPC(mass, inertia, self.config.stance)
        self.mpc.reset()
        self.physics = physics
        self.tick = 0
        self.offsets = np.zeros((4, 2))
        self._asides = np.zeros(4)  # m, shifts to the left of the current or last swings
        self.reading = read(physics.state())
        self.landings = self.reading.feet_world.copy()  # world targets of the current or last swing
        self._lift_offs = self.reading.feet_world.copy()
        self._standing = np.ones(4, bool)
        self._forces = np.zeros((4, 3))
        self.ground = 0.0  # height of the ground below the standing feet, m
        self._halting, self._stand_since = False, math.inf
        self._posture: Array | None = None  # held joint angles [12] (rad)

    def halt(self) -> None:
        """Come to a stand: feet in the air land, and no foot lifts off again.

        The MPC brakes first. Then every joint is held, since the MPC tracks no position and would drift.
        """
        self._halting = True

    @property
    def time(self) -> float:
        """Seconds since the reset."""
        return self.tick * self.config.control_period

    @property
    def swinging(self) -> NDArray[np.bool_]:
        """Which feet are in the air, [4]."""
        return ~self._standing

    def desired_velocity(self) -> Array:
        """Commanded velocity of the base, [2] (m/s), yaw frame."""
        if self._halting:
            return np.zeros(2)
        ahead = self.config.speed * min(1.0, self.time / self.config.ramp)
        return np.array([ahead, -self.config.centring * self.reading.position[1]])

    def nominal_landings(self) -> Array:
        """Landing point of each foot if it lifted off now without an offset, [4] (m along x from its hip).

        For a foot in the air it is the point where it will land.
        """
        return np.where(self._standing, self._ahead(), self.landings[:, 0] - self.hips_world()[:, 0])

    def nominal_asides(self) -> Array:
        """The same to the left, from straight ahead of its leg's plane, [4] (m)."""
        return self.sway() + np.where(self._standing, 0.0, self._asides)

    def sway(self) -> float:
        """How far to the left of it a foot lands that lifts off now (m)."""
        reading = self.reading
        roll, rate = reading.attitude[0], reading.angular_velocity[0]
        return float(SWAY @ np.array([reading.velocity[1], reading.position[1], roll, rate]))

    def hips_world(self) -> Array:
        """Positions of the abduction joints, [4, 3] (m, world)."""
        reading = self.reading
        return reading.position + reading.hips @ reading.to_yaw

    def _ahead(self) -> float:
        """Distance (m) ahead of its hip at which a foot that lifts off now will land."""
        gait, speed = self.config.gait, self.reading.velocity[0]
        desired, capture = self.desired_velocity()[0], self.config.swing.capture
        return float(raibert_offset(speed, desired, gait.swing, gait.stance, capture))

    def lifting(self) -> NDArray[np.bool_]:
        """Which feet lift off in the next control period, [4]."""
        return self._standing & (not self._has_halted) & ~self._scheduled()

    def _scheduled(self) -> NDArray[np.bool_]:
        """Which feet the gait schedules to stand now, [4]."""
        gait = self.config.gait
        return np.asarray(standing(self.time, gait.period, gait.swing))

    def advance(self) -> NDArray[np.bool_]:
        """Advance by one control period. Returns which feet touched down by schedule in it, [4]."""
        reading, config = self.reading, self.config
        # All four feet stood in the last control period, or are scheduled to stand now.
        if self._halting and not self._has_halted and (self._standing.all() or self._scheduled().all()):
            self._stand_since = self.time
        if self.time - self._stand_since >= config.braking:
            return self._hold()
        stands, touched, lifting, changed, height = scheduled(
            self.time, config.gait.period, self._swing(), self._standing, reading.feet_world
        )
        if changed:
            self._lift_offs[lifting] = reading.feet_world[lifting]
            ahead = self.hips_world()[:, 0] + self._ahead() + self.offsets[:, 0]
            self.landings[lifting, 0] = ahead[lifting]
            self._asides[lifting] = self.offsets[lifting, 1]
        replan = changed or self.tick % config.replan_every == 0
        self._standing = stands
        self.ground = height - FOOT_RADIUS
        desired = self.desired_velocity()
        if replan:
            self._forces = self._plan(desired)
        targets, torques, held = commands(
            reading,
            stands,
            self.time + config.control_period,  # the time of the targets
            desired,
            self._forces,
            self._lift_offs,
            self.landings,
            self._asides,
            self._timing,
            height - config.swing.touchdown_press,
        )
        self.physics.command(targets, torques, held)
        self._step_physics()
        return np.asarray(touched)

    def _hold(self) -> NDArray[np.bool_]:
        """Hold every joint for one control period."""
        if self._posture is None:
            self._posture = self.reading.joints.ravel().copy()
        self.physics.command(self._posture, np.zeros(12), np.ones(12, bool))
        self._step_physics()
        return np.zeros(4, bool)

    def _step_physics(self) -> None:
        self.physics.step()
        self.tick += 1
        self.reading = read(self.physics.state())

    @property
    def _has_halted(self) -> bool:
        return self._stand_since < math.inf

    def _swing(self) -> float:
        """Duration (s) of a swing."""
        return 0.0 if self._has_halted else self.config.gait.swing

    def _plan(self, desired: Array) -> Array:
        assert self.mpc is not None
        config = self.config
        plan = planned(
            self.reading,
            self.time,
            config.stance.step_period,
            config.stance.steps,
            config.gait.period,
            self._swing(),
            self._standing,
            self._center,
            self.landings,
            desired,
            config.heading,
            self.ground + config.height + self._center[2],
        )
        return self.mpc.forces(plan)
