"""The low level: a trot with position control of the swing legs and an MPC for the stance legs.

It controls the heading and the lateral position. A policy only shifts the landing point of each foot.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.commands import commands, planned, scheduled
from robopolicy.control.gait import raibert_offset, standing
from robopolicy.control.reading import read
from robopolicy.control.robot import Robot, WalkerConfig
from robopolicy.control.stance import ConvexMPC
from robopolicy.control.state import Array, BodyState, checked, checked_state


class JointCommands(NamedTuple):
    """What the joints do until the next control period.

    Attributes:
      positions: [12] (rad), of the joints that are held.
      torques: [12] (N m), of the others; within the robot's limits.
      held: [12], which joints follow positions.
    """

    positions: Array
    torques: Array
    held: NDArray[np.bool_]


class Controller:
    """Runs the gait of a robot.

    `offsets` [4, 2] (m, ahead and to the left) shift the landing point of each foot. A foot keeps the offset
    of its lift-off until it has landed. `touched` [4]: which feet touched down by schedule in the last
    command.
    """

    def __init__(self, robot: Robot, config: WalkerConfig | None = None) -> None:
        """`config` replaces the robot's own."""
        self.robot = robot
        self.config = config = config or robot.walker
        self._legs = robot.legs
        self._sway = np.array(robot.trot.sway)
        self._most = np.array(robot.torques)
        gait, swing = config.gait, config.swing
        self._timing = np.array(
            [gait.period, gait.swing, gait.stance, swing.capture, swing.apex, config.stance.grip]
        )
        self.mpc: ConvexMPC | None = None
        self._commanded = False

    def step(self, state: BodyState, offsets: Array | None = None) -> JointCommands:
        """The commands for one control period, from the `state` at its beginning.

        `offsets` replace those of the controller. Raises RuntimeError before the first `reset`, ValueError
        for arrays of another shape or type, for numbers that are not finite and for a rotation whose rows
        are not orthonormal, and ArithmeticError if the MPC finds no ground forces: stop the robot then.
        """
        if self.mpc is None:
            raise RuntimeError("call reset before step")
        state = checked_state(state)
        if offsets is not None:
            self.offsets[:] = checked("offsets", offsets, (4, 2))
        if self._commanded:
            self.observe(state)
        else:
            self.reading = read(state, self._legs)
        return self.command()

    def reset(self, state: BodyState, body: tuple[float, Array, Array] | None = None) -> None:
        """Start at time 0 from `state`.

        body: mass (kg), centre of mass [3] (m) and inertia about it [3, 3] (kg m^2), in base axes; those of
        the robot by default.

        Raises ValueError for a state as `step` does.
        """
        state, robot = checked_state(state), self.robot
        mass, center, inertia = body or (robot.mass, np.array(robot.center), np.array(robot.inertia))
        self._center = center
        self.mpc = ConvexMPC(mass, inertia, self.config.stance)
        self.tick = 0
        self.offsets = np.zeros((4, 2))
        self._asides = np.zeros(4)  # m, shifts to the left of the current or last swings
        self.reading = read(state, self._legs)
        self.landings = self.reading.feet_world.copy()  # world targets of the current or last swing
        self._lift_offs = self.reading.feet_world.copy()
        self._standing = np.ones(4, bool)
        self.touched = np.zeros(4, bool)
        self._forces = np.zeros((4, 3))
        self.ground = 0.0  # height of the ground below the standing feet, m
        self._commanded = False
        self._halting, self._stand_since = False, math.inf
        self._posture: Array | None = None  # held joint angles [12] (rad)

    def halt(self) -> None:
        """Come to a stand: feet in the air land, and no foot lifts off again.

        The MPC brakes first. Then every joint is held, since the MPC tracks no position and would drift.
        """
        self._halting = True

    def retarget(self, feet: NDArray[np.bool_], offsets: Array) -> None:
        """Use `offsets` [4, 2] (m) from now on, also for the `feet` [4] that are in the air already.

        It is for commands that arrive just after a foot has lifted off. Raises ValueError as `step`.
        """
        offsets = checked("offsets", offsets, (4, 2))
        self.landings[feet, 0] += (offsets - self.offsets)[feet, 0]
        self._asides[feet] = offsets[feet, 1]
        self.offsets[:] = offsets

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
        """How far to the left of its leg's plane a foot lands that lifts off now (m)."""
        reading = self.reading
        roll, rate = reading.attitude[0], reading.angular_velocity[0]
        return float(self._sway @ np.array([reading.velocity[1], reading.position[1], roll, rate]))

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
        return self._standing & (not self._stands) & ~self._scheduled()

    def _scheduled(self) -> NDArray[np.bool_]:
        """Which feet the gait schedules to stand now, [4]."""
        gait = self.config.gait
        return np.asarray(standing(self.time, gait.period, gait.swing))

    def command(self) -> JointCommands:
        """The commands of the control period that begins now."""
        reading, config = self.reading, self.config
        self._commanded = True
        if self._stands:
            self._stand_since = min(self._stand_since, self.time)
        if self.time - self._stand_since >= config.braking:
            return self._held()
        stands, touched, lifting, changed, height = scheduled(
            self.time, config.gait.period, self._swing(), self._standing, reading.feet_world
        )
        if changed:
            self._lift_offs[lifting] = reading.feet_world[lifting]
            ahead = self.hips_world()[:, 0] + self._ahead() + self.offsets[:, 0]
            self.landings[lifting, 0] = ahead[lifting]
            self._asides[lifting] = self.offsets[lifting, 1]
        replan = changed or self.tick % config.replan_every == 0
        self._standing, self.touched = stands, touched
        self.ground = height - self._legs.foot_radius
        desired = self.desired_velocity()
        if replan:
            self._forces = self._plan(desired)
        targets, torques, held = commands(
            self._legs,
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
        return JointCommands(targets, np.clip(torques, -self._most, self._most), held)

    def observe(self, state: BodyState) -> None:
        """Read the `state` at the end of the control period of the last command; it is not checked."""
        self.tick += 1
        self.reading = read(state, self._legs)

    def _held(self) -> JointCommands:
        """Every joint is held."""
        if self._posture is None:
            self._posture = self.reading.joints.ravel().copy()
        self._standing, self.touched = np.ones(4, bool), np.zeros(4, bool)
        return JointCommands(self._posture.copy(), np.zeros(12), np.ones(12, bool))

    @property
    def _stands(self) -> bool:
        """Whether no foot lifts off any more, from the control period that begins now on."""
        # In a halt, all four feet stood in the last control period, or are scheduled to stand now.
        is_down = self._halting and (self._standing.all() or self._scheduled().all())
        return bool(is_down) or self._stand_since < math.inf

    def _swing(self) -> float:
        """Duration (s) of a swing."""
        return 0.0 if self._stand_since < math.inf else self.config.gait.swing

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
