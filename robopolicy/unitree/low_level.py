"""The 500 Hz loop of a Go2 without a network or a clock: low states in, low commands out, a safe stop.

The robot rises, stands, walks by the gait and the state estimate of `robopolicy.control`, and comes to rest
by itself. Time is that of the messages: a message that is missing is bridged by the next one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.controller import Controller, JointCommands
from robopolicy.control.estimate import Sensed, StateEstimator
from robopolicy.control.kinematics import foot_positions, joint_angles
from robopolicy.control.odometry import Odometry
from robopolicy.control.proprioception import proprioception
from robopolicy.control.robot import JOINTS, Robot, WalkerConfig
from robopolicy.control.stance import GRAVITY
from robopolicy.control.state import Array, checked_state
from robopolicy.unitree.checks import PERIOD, BadMessage, SafetyConfig, StateCheck, Unsafe, sensed_of
from robopolicy.unitree.records import LOW_STATE, NO_POSITION, NO_VELOCITY, Record, new_command, sealed

LOW = 0.115  # m, height of the base over the ground when the motors begin to damp
NEAR = 0.15  # rad from standing: the robot stands
RISE, LIE, SETTLE = 2.0, 2.0, 0.2  # s
REHEARSED = 400  # periods: past the first feet that lift off and land
STAND = 0.5  # s on all feet after a halt, before the robot lies down


class Phase(Enum):
    """What the low level does."""

    WAITING = "waits for a low state"
    RISING = "rises"
    STANDING = "stands"
    WALKING = "walks"
    HALTING = "halts"
    LYING = "lies down"
    DAMPED = "is at rest, its motors damp"


_DURATIONS = {Phase.RISING: RISE, Phase.STANDING: SETTLE, Phase.LYING: LIE}


class LowLevel:
    """Drives one robot from its first low state to its rest.

    Attributes:
      phase: what it does; reason: why it was stopped, None before.
      steps: policy steps that have begun. The newest `readings` are of the last one's beginning.
      ignored: counts of messages that were not used, by kind; complaint: about the first of them after the
        last valid one.
      periods: control periods of 2 ms that have passed; bridged: those without a message of their own.
      overdue: commands of the policy that came after its deadline, by the robot's clock.
      command: the LOW_CMD [] that the robot is to have now.
    """

    def __init__(
        self,
        robot: Robot,
        walker: WalkerConfig,
        policy_period: float,
        scale: NDArray[np.float32],
        deadline: float,
        safety: SafetyConfig | None = None,
    ) -> None:
        """
        walker: of the policy's training; its control period is replaced by that of the messages.
        policy_period, deadline: s, of the policy. scale: [4 or 8] (m), of an action of one.
        """
        period = 1e-3 * PERIOD
        every = max(1, round(walker.replan_every * walker.control_period / period))
        self.walker = replace(walker, control_period=period, replan_every=every)
        self.robot, self.safety = robot, safety or SafetyConfig()
        self._check = StateCheck(robot, self.safety)
        self._controller = Controller(robot, self.walker)
        self._estimator = StateEstimator(robot, period=period)
        self._standing = robot.standing_joints(walker.height)
        self._every, self._late = round(policy_period / period), round(deadline / period)
        self._scale = scale
        self._low, self._high = np.array(robot.limits).T
        self.phase = Phase.WAITING
        self.reason: str | None = None
        self.steps, self.periods, self.bridged, self.overdue = 0, 0, 0, 0
        self.readings: dict[str, NDArray[np.float32]] = {}
        self.ignored: Counter[str] = Counter()
        self.complaint = ""
        self._acted = 0
        self._action = np.zeros(len(scale), np.float32)
        self._pending: Array | None = None
        self._wanted, self._stop_wanted = False, ""
        self._silent = 0.0  # s since the last valid state
        self._ahead = 0.0  # rad, yaw by the IMU where the robot was put
        self._owed = 0.0  # ms that are no whole period
        self._since = 0  # periods of this phase
        self._from = self._standing  # joints at its beginning
        self._felt, self._felt_times = np.zeros(3), 0  # sum of accelerometer readings while it stands
        self._lifted = np.full(4, -(10**9))  # tick of the last lift-off of each foot
        self.command = sealed(new_command())

    def rehearse(self) -> None:
        """Walk and stop by the messages of a robot that stands still, so that nothing compiles in real time.

        It is for a low level of its own, before another one drives. Raises ValueError, in one line, for
        settings with which the robot does not walk.
        """
        state = np.zeros((), LOW_STATE)
        state["imu_state"]["quaternion"][0], state["imu_state"]["accelerometer"][2] = 1.0, -GRAVITY
        state["motor_state"]["q"][:JOINTS] = self._standing

        def step() -> None:
            state["tick"] += PERIOD
            self.update(sealed(state))
            self.act(np.zeros_like(self._action))

        self.walk()
        for _ in range(REHEARSED):
            step()
        if self.reason is not None:
            raise ValueError(f"bundle has a low level that does not walk: {self.reason}")
        self.stop("the rehearsal ends")
        while self.phase in (Phase.WALKING, Phase.HALTING):
            step()

    @property
    def ready(self) -> bool:
        """Whether the robot has stood for `SETTLE` seconds."""
        return self.phase is Phase.STANDING and self._since * PERIOD >= 1e3 * SETTLE

    @property
    def rests(self) -> bool:
        """Whether all motors have damped for half a second."""
        return self.phase is Phase.DAMPED and self._since * PERIOD >= 500

    def walk(self) -> None:
        """Begin to walk as soon as the robot stands."""
        self._wanted = True

    def act(self, command: NDArray[np.float32]) -> None:
        """Use the footholds of a `command` [4 or 8] (m), also for feet that have just lifted off."""
        offsets = np.zeros((4, 2))
        offsets[:, : len(command) // 4] = command.reshape(-1, 4).T
        self._action, self._pending, self._acted = command / self._scale, offsets, self.steps

    @property
    def is_stopping(self) -> bool:
        """Whether it was stopped, or will be with the next message."""
        return bool(self._stop_wanted or self.reason)

    @property
    def is_asked(self) -> bool:
        """Whether the driver has neither acted nor held since the last step began."""
        return self._acted < self.steps

    def hold(self) -> None:
        """Keep the footholds of the last command."""
        self._acted = self.steps

    def stop(self, reason: str) -> None:
        """Come to rest: halt the gait if it runs, lie down, damp. The first reason is kept."""
        self._stop_wanted = self._stop_wanted or reason or "no reason was given"

    def missing(self, seconds: float) -> None:
        """For another `seconds`, no valid message has come. After `SafetyConfig.lost`, all motors damp."""
        self._silent += seconds
        if self.phase is Phase.DAMPED:
            self._owed += 1e3 * seconds
            periods = round(self._owed / PERIOD)
            self._owed -= periods * PERIOD
            self._since += periods
        if self.phase is not Phase.WAITING and self._silent > self.safety.lost + 1e-9:
            last = f": {self.complaint}" if self.complaint else ""
            self.damp(f"no valid rt/lowstate for {1e3 * self._silent:.0f} ms{last}")

    def ignore(self, kind: str, complaint: str) -> None:
        """Count a message that is not used."""
        self.ignored[kind] += 1
        self.complaint = self.complaint or complaint

    def update(self, state: Record) -> bool:
        """Take a message, and set the command. Returns whether it counts: a bad one is ignored.

        Sound but unsafe readings damp all motors at once.
        """
        try:
            passed = self._check(state)
        except BadMessage as error:
            self.ignore(error.kind, str(error))
            return False
        except Unsafe as error:
            self._silent = 0.0
            self.damp(str(error))
            self._since += 1
            return True
        self._silent, self.complaint = 0.0, ""
        self._owed += passed
        periods = round(self._owed / PERIOD)
        self._owed -= periods * PERIOD
        if self.phase is Phase.WAITING:
            sensed = sensed_of(state)
            self._ahead = self._estimator.yaw(sensed)  # a robot that rises may turn a little
            self._enter(Phase.RISING, sensed.joint_positions)
        elif periods == 0:
            return True
        self.periods += periods
        self.bridged += max(0, periods - 1)
        self._since += periods
        try:
            self.command = sealed(self._next(sensed_of(state), max(1, periods)))
        except (ValueError, ArithmeticError) as error:  # an estimate that is not finite, or no ground forces
            self.damp(f"the low level failed: {error}")
        return True

    def _next(self, sensed: Sensed, periods: int) -> Record:
        """The command of this phase, or of the one that begins now."""
        seconds = 1e-3 * PERIOD * self._since
        if self._stop_wanted and self.reason is None:
            self.reason = self._stop_wanted
            if self.phase is Phase.WALKING:
                self._controller.halt()
                self._enter(Phase.HALTING, sensed.joint_positions)
            else:
                self._enter(Phase.LYING, sensed.joint_positions)
        elif self.phase is Phase.RISING and (self._away(self._from) < NEAR or seconds >= RISE):
            self._stand(sensed.joint_positions)
        elif self.ready and self._wanted:
            self._begin(sensed)
        elif self.phase is Phase.HALTING:
            gait = self.walker.gait.period + self.walker.braking
            if seconds >= gait + STAND:
                self._enter(Phase.LYING, sensed.joint_positions)
        elif self.phase is Phase.LYING and seconds >= LIE:
            self._enter(Phase.DAMPED, sensed.joint_positions)
        if self.phase in (Phase.WALKING, Phase.HALTING):
            return self._joints(self._walk(sensed, periods))
        if self.phase is Phase.DAMPED:
            return self._damped()
        if self.phase is Phase.STANDING:
            self._felt += sensed.accelerometer
            self._felt_times += 1
        share = min(1.0, 1e-3 * PERIOD * self._since / _DURATIONS[self.phase])
        if self.phase is Phase.LYING:
            return self._held(self._lowered(share))
        return self._held(self._from + share * (self._standing - self._from))

    def _enter(self, phase: Phase, joints: Array) -> None:
        self.phase, self._since, self._from = phase, 0, joints

    def _lowered(self, share: float) -> Array:
        """Joints with the base a `share` of its way down; feet stay, since stones have edges."""
        legs = self.robot.legs
        toes = foot_positions(legs, self._from.reshape(4, 3)).copy()
        toes[:, 2] += share * np.maximum(0.0, legs.foot_radius - LOW - toes[:, 2])
        return np.asarray(joint_angles(legs, toes)).ravel()

    def _away(self, joints: Array) -> float:
        """The largest distance (rad) of a joint from standing."""
        return float(np.abs(joints - self._standing).max())

    def _stand(self, joints: Array) -> None:
        """The rise ends. A robot whose joints have not followed does not stand."""
        if self._away(joints) < NEAR:
            self._enter(Phase.STANDING, joints)
            return
        at = int(np.abs(joints - self._standing).argmax())
        self.stop(
            f"the robot did not stand up: joint {self.robot.joints[at]!r} is at {joints[at]:.3g} rad, "
            f"and {self._standing[at]:.3g} when it stands"
        )

    def _begin(self, sensed: Sensed) -> None:
        # A single reading of an accelerometer has too much noise to tell gravity.
        resting = sensed._replace(accelerometer=self._felt / self._felt_times)
        try:
            state = self._estimator.reset(resting, self._ahead)
        except ValueError as error:
            self.stop(f"the robot does not stand still: {error}")
            return
        self._controller.reset(state)
        self._odometry = Odometry(self.robot.legs, self._controller.reading)
        self._enter(Phase.WALKING, sensed.joint_positions)
        self._read()

    def _walk(self, sensed: Sensed, periods: int) -> JointCommands:
        controller = self._controller
        if self._since or self.phase is Phase.HALTING:  # the first of all begins in the state of the reset
            for _ in range(periods):
                self._observe(sensed)
        pending, self._pending = self._pending, None  # at once: another thread acts
        if pending is not None and self.phase is Phase.WALKING:
            fresh = controller.swinging & (controller.tick - self._lifted <= self._late + 1)
            controller.retarget(fresh, pending)
            self.overdue += controller.tick % self._every > self._late
        stood = ~controller.swinging
        commands = controller.command()
        self._lifted[stood & controller.swinging] = controller.tick
        return commands

    def _observe(self, sensed: Sensed) -> None:
        """The end of a control period."""
        controller = self._controller
        state = self._estimator.update(sensed, ~controller.swinging)
        controller.observe(checked_state(state))
        self._odometry.update(controller.reading, ~controller.swinging)
        if self.phase is Phase.WALKING and controller.tick % self._every == 0:
            self._read()
            if self.steps - self._acted > self.safety.silence:
                self.stop(f"the driver was silent for {self.safety.silence} steps")

    def _read(self) -> None:
        """A policy step begins."""
        controller = self._controller
        body = proprioception(controller, self._action, lateral=len(self._action) > 4)
        place = [*self._odometry.place, controller.reading.attitude[2]]
        self.readings = {
            "proprioception": body.astype(np.float32),
            "odometry": np.array(place, np.float32),
        }
        self.steps += 1

    def damp(self, reason: str) -> None:
        """Damp all motors at once."""
        self.reason = self.reason or reason
        if self.phase is not Phase.DAMPED:
            self._enter(Phase.DAMPED, self._from)
        self.command = sealed(self._damped())

    def _held(self, joints: Array) -> Record:
        return self._joints(JointCommands(joints, np.zeros(JOINTS), np.ones(JOINTS, bool)))

    def _damped(self) -> Record:
        command = new_command()
        motors = command["motor_cmd"][:JOINTS]
        motors["dq"], motors["kd"] = 0.0, self.safety.damping
        return command

    def _joints(self, commands: JointCommands) -> Record:
        command = new_command()
        motors, held = command["motor_cmd"][:JOINTS], commands.held
        motors["q"] = np.where(held, np.clip(commands.positions, self._low, self._high), NO_POSITION)
        motors["dq"] = np.where(held, 0.0, NO_VELOCITY)
        motors["kp"], motors["kd"] = self.robot.stiffness * held, self.robot.damping * held
        motors["tau"] = np.where(held, 0.0, commands.torques)
        return command
