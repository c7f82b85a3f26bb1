"""The low level: a trot with position control of the swing legs and an MPC for the stance legs.

It controls the heading and the lateral position. A policy only shifts the landing point of each foot along x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, Physics
from robopolicy.envs.quadruped.control import commands, planned, scheduled
from robopolicy.envs.quadruped.gait import Trot, TrotConfig
from robopolicy.envs.quadruped.kinematics import FOOT_RADIUS, HIPS, LEG_PLANE, joint_angles
from robopolicy.envs.quadruped.reading import Reading
from robopolicy.envs.quadruped.stance import ConvexMPC, StanceConfig
from robopolicy.envs.quadruped.swing import SwingConfig, raibert_offset


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
    return joint_angles(_below_hips(height)).ravel()


def _below_hips(height: float) -> Array:
    return np.stack([HIPS[:, 0], HIPS[:, 1] + LEG_PLANE, np.full(4, FOOT_RADIUS - height)], axis=1)


class Walker:
    """Runs the gait. `offsets` [4] (m) shift each foot's landing point and are latched at its lift-off."""

    def __init__(self, config: WalkerConfig) -> None:
        self.config = config
        self.trot = Trot(config.gait)
        timing = (
            self.trot.period,
            self.trot.swing,
            self.trot.stance,
            config.swing.capture,
            config.swing.apex,
        )
        self._timing = np.array(timing)
        self.mpc: ConvexMPC | None = None

    def reset(self, physics: Physics) -> None:
        """Start at time 0 from the pose that `physics` is in."""
        mass, self._center, inertia = physics.mass_properties()
        if self.mpc is None:
            self.mpc = ConvexMPC(mass, inertia, self.config.stance)
        self.mpc.reset()
        self.physics = physics
        self.tick = 0
        self.offsets = np.zeros(4)
        self.reading = Reading(physics.state())
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

    def hips_world(self) -> Array:
        """Positions of the abduction joints, [4, 3] (m, world)."""
        reading = self.reading
        return reading.position + reading.hips @ reading.to_yaw

    def _ahead(self) -> float:
        """Distance (m) ahead of its hip at which a foot that lifts off now will land."""
        trot, speed = self.trot, self.reading.velocity[0]
        desired, capture = self.desired_velocity()[0], self.config.swing.capture
        return float(raibert_offset(speed, desired, trot.swing, trot.stance, capture))

    def lifting(self) -> NDArray[np.bool_]:
        """Which feet lift off in the next control period, [4]."""
        return self._standing & ~self._scheduled()

    def _scheduled(self) -> NDArray[np.bool_]:
        return np.ones(4, bool) if self._has_halted else self.trot.standing(self.time)

    def advance(self) -> NDArray[np.bool_]:
        """Advance by one control period. Returns which feet touched down by schedule in it, [4]."""
        reading, config, trot = self.reading, self.config, self.trot
        if self._halting and not self._has_halted and self._all_feet_down():
            self._stand_since = self.time
        if self.time - self._stand_since >= config.braking:
            return self._hold()
        stands, touched, lifting, changed, height = scheduled(
            self.time, trot.period, self._swing(), self._standing, reading.feet_world
        )
        if changed:
            self._lift(lifting)
        replan = changed or self.tick % config.replan_every == 0
        self._standing = stands
        self.ground = height - FOOT_RADIUS
        desired = self.desired_velocity()
        if replan:
            self._forces = self._plan(desired)
        targets, torques, held = commands(
            stands,
            self.time + config.control_period,  # the time of the targets
            reading.joints,
            reading.position,
            reading.velocity,
            desired,
            reading.to_yaw,
            reading.base_to_yaw,
            reading.hips,
            self._forces,
            self._lift_offs,
            self.landings,
            self._timing,
            height - config.swing.touchdown_press,
        )
        self.physics.command(targets, torques, held)
        self._step_physics()
        return np.asarray(touched)

    def _all_feet_down(self) -> bool:
        """Whether all four feet stood in the last control period, or are scheduled to stand now."""
        return bool(self._standing.all() or self.trot.standing(self.time).all())

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
        self.reading = Reading(self.physics.state())

    @property
    def _has_halted(self) -> bool:
        return self._stand_since < math.inf

    def _swing(self) -> float:
        """Duration (s) of a swing."""
        return 0.0 if self._has_halted else self.trot.swing

    def _lift(self, lifting: NDArray[np.bool_]) -> None:
        self._lift_offs[lifting] = self.reading.feet_world[lifting]
        self.landings[lifting, 0] = (self.hips_world()[:, 0] + self._ahead() + self.offsets)[lifting]

    def _plan(self, desired: Array) -> Array:
        assert self.mpc is not None
        reading, config = self.reading, self.config
        pose, rates, wanted, feet, schedule = planned(
            self.time,
            config.stance.step_period,
            config.stance.steps,
            self.trot.period,
            self._swing(),
            self._standing,
            self._center,
            reading.position,
            reading.attitude,
            reading.velocity,
            reading.angular_velocity,
            reading.feet,
            self.landings,
            reading.to_yaw,
            reading.base_to_yaw,
            desired,
            config.heading,
        )
        height = self.ground + config.height + self._center[2]
        return self.mpc.forces(pose, rates, wanted, height, feet, schedule)
