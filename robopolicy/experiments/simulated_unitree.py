"""A simulated Go2 in a process of its own: it publishes low states and depth images and obeys commands."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from robopolicy.control.robot import JOINTS, Robot
from robopolicy.control.robots import GO2
from robopolicy.control.state import BodyState
from robopolicy.envs.quadruped.body_sensors import BodySensorConfig, BodySensors
from robopolicy.envs.quadruped.driven import Drive, DrivenStones, Motors
from robopolicy.envs.quadruped.presets import presets_of
from robopolicy.experiments.unitree_faults import Faults, FaultyLine
from robopolicy.unitree.checks import PERIOD
from robopolicy.unitree.low_level import SETTLE
from robopolicy.unitree.records import HEAD, LOW_STATE, Record, checksum, new_command, sealed

WATCHDOG = 25  # periods without a command after which the motors damp; Unitree publishes no number
DAMPING = 2.0  # N m s/rad, of that
IMAGE_EVERY = 5  # periods
LOCK_STEP, ASKING = 2.0, 0.005  # s, for a command without a pace, and for the first one
REHEARSED = 2  # steps of the policy
ENDING = 5.0  # s, for its process to leave the network
WAITING = 120.0  # s, for the simulated robot's process, which compiles at its first start
GONE = "the simulated robot has ended"
READY, PLAYED, RESTS = "ready", "played", "rests"


class Electronics:
    """The robot's own computer: sensors become low states, low commands become motors.

    Attributes:
      commanded: whether a command has come; stale: periods without a new one since; refused: bad ones.
      tick: ms.
    """

    def __init__(self, robot: Robot, rng: np.random.Generator) -> None:
        self._sensors = BodySensors(BodySensorConfig(), 1e-3 * PERIOD, rng)
        self._command: Record | None = None
        self._age = 0
        self.commanded, self.stale, self.refused, self.tick = False, 0, 0, 0

    def state(self, body: BodyState) -> Record:
        """The low state of now."""
        sensed = self._sensors.read(body)
        state = np.zeros((), LOW_STATE)
        state["head"], state["level_flag"] = HEAD, 0xFF
        imu, motors = state["imu_state"], state["motor_state"][:JOINTS]
        imu["quaternion"], imu["gyroscope"] = sensed.orientation, sensed.gyroscope
        imu["accelerometer"] = sensed.accelerometer
        motors["mode"], motors["temperature"] = 1, 35
        motors["q"], motors["dq"] = sensed.joint_positions, sensed.joint_velocities
        self.tick += PERIOD
        state["tick"], state["power_v"], state["bms_state"]["soc"] = self.tick, 30.0, 80
        return sealed(state)

    def obey(self, command: Record) -> None:
        """Take a command; one with another head or checksum is refused."""
        if tuple(command["head"]) != HEAD or int(command["crc"]) != checksum(command):
            self.refused += 1
            return
        self._command, self._age, self.commanded = command, 0, True

    def motors(self) -> Motors:
        """What the motors do in the period that begins now."""
        self.stale += self._age > 0
        self._age += 1
        if self._command is None or self._age > WATCHDOG:
            zero = np.zeros(JOINTS)
            return Motors(zero, zero, zero, np.full(JOINTS, DAMPING), zero)
        motors = self._command["motor_cmd"][:JOINTS]
        parts = {name: motors[name].astype(float) for name in ("q", "dq", "kp", "kd", "tau")}
        # A servo follows its own sensor.
        return Motors(
            parts["q"] - self._sensors.offsets, *(parts[name] for name in ("dq", "kp", "kd", "tau"))
        )


class Played(NamedTuple):
    """An episode of the simulated robot.

    Attributes:
      cause, distance, success: of the task's end.
      seconds: of simulation. late: periods that the simulator began late, by more than a half.
      stale, refused: see `Electronics`.
    """

    cause: str
    distance: float
    success: bool
    seconds: float
    late: int
    stale: int
    refused: int


class Rest(NamedTuple):
    """How a robot rests: fastest joint (rad/s), tilt (rad) and height (m) of the base."""

    speed: float
    tilt: float
    height: float


def driven_stones(drive: Any, preset: str, others: Mapping[str, Any]) -> DrivenStones:
    """The task of `preset` for a Go2, in periods of its low level; sensors are those of `Electronics`."""
    config = presets_of(GO2)[preset].seen_by(others.get("cameras"), others.get("drift"))
    walker = replace(config.walker, control_period=1e-3 * PERIOD)
    seconds = config.episode_seconds + SETTLE + config.policy_period
    config = replace(config, walker=walker, body_sensors=None, episode_seconds=seconds)
    return DrivenStones(drive, config=config)


class SimulatedGo2:
    """The process of a simulated Go2. Use it as a context."""

    def __init__(
        self, network: Any, preset: str, others: Mapping[str, Any], pace: float, faults: Faults
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        settings = (theirs, network, preset, dict(others), pace, faults)
        self._process = context.Process(target=_serve, args=settings, daemon=True)
        self._process.start()
        theirs.close()
        self._played: Played | None = None

    def __enter__(self) -> SimulatedGo2:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join(ENDING)
        self.kill()

    def kill(self) -> None:
        """End the process at once, in the middle of whatever it does."""
        self._process.kill()
        self._process.join()

    def begin(self, seed: int) -> None:
        """Put the robot at the start of the course of `seed`, where it waits for its first command."""
        self._played = None
        self._send(seed)
        self._expect(READY)

    def played(self) -> Played | None:
        """The result of the episode, once it has ended."""
        if self._played is None and self._connection.poll():
            self._played = self._expect(PLAYED)
        return self._played

    def end(self) -> tuple[Played, Rest]:
        """End the episode. Returns how it went, and how the robot rests."""
        self._send(None)
        played = self._played or self._expect(PLAYED)
        return played, self._expect(RESTS)

    def _send(self, asked: int | None) -> None:
        try:
            self._connection.send(asked)
        except OSError as error:
            raise ConnectionError(GONE) from error

    def _expect(self, kind: str) -> Any:
        if not self._connection.poll(WAITING):
            raise ConnectionError(f"the simulated robot did not answer within {WAITING:g} s")
        try:
            got, content = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ConnectionError(GONE) from error
        assert got == kind
        return content


class _Interrupted(Exception):  # noqa: N818 (no error)
    """The other process has something to say."""


class _Player:
    """Plays in real time, or slower."""

    def __init__(
        self,
        connection: Connection,
        network: Any,
        preset: str,
        others: dict[str, Any],
        pace: float,
        faults: Faults,
    ) -> None:
        from robopolicy.unitree.dds import LOW_CMD, Node
        from robopolicy.unitree.dds import LOW_STATE as STATE_TOPIC

        self._connection, self._faults = connection, faults
        self._period = 1e-3 * PERIOD / pace if pace else 0.0
        self._patience = 0.0 if pace else LOCK_STEP
        self._now: Drive = self._rehearsed
        self._stones = driven_stones(lambda body: self._now(body), preset, others)
        self._rehearse()
        self._node = Node(network)
        self._states = self._node.writer(STATE_TOPIC, "LowState_")
        self._commands = self._node.records(LOW_CMD, "LowCmd_")
        self._cameras = {name: self._node.image_writer(f"rt/{name}") for name in self._stones.config.images}

    def _rehearse(self) -> None:
        """Play a moment without a network, so that nothing compiles in real time."""
        stones = self._stones
        stones.reset(seed=0)
        self.electronics = Electronics(GO2, stones.np_random)
        self.electronics.obey(sealed(new_command()))
        for _ in range(REHEARSED):
            stones.step(np.zeros(len(stones.actions), np.float32))
        self._now = self._drive

    def _rehearsed(self, body: BodyState) -> Motors:
        self.electronics.state(body)
        self._stones.depth_images()
        return self.electronics.motors()

    def play(self, seed: int) -> None:
        """Play the course of `seed` until the other process has something to say."""
        stones = self._stones
        stones.reset(seed=seed)
        rng = stones.np_random
        self.electronics = electronics = Electronics(GO2, rng)
        self._line = FaultyLine(self._faults, rng)
        self._late, self._due = 0, time.monotonic()
        self._commands.take()
        self._connection.send((READY, None))
        still = np.zeros(len(stones.actions), np.float32)
        over = False
        try:
            while not over:
                _, _, ended, cut, info = stones.step(still)
                over = ended or cut
        except _Interrupted:
            info = stones.info("interrupted")
        seconds = 1e-3 * (electronics.tick - PERIOD)
        counts = (seconds, self._late, electronics.stale, electronics.refused)
        told = Played(info["cause"], float(info["distance"]), bool(info["success"]), *counts)
        self._connection.send((PLAYED, told))
        try:
            while True:  # the world goes on
                stones.walker.advance()
        except _Interrupted:
            pass
        truth = stones.walker.truth
        speed = float(np.abs(truth.rates).max())
        self._connection.send((RESTS, Rest(speed, float(truth.tilt), float(truth.position[2]))))

    def close(self) -> None:
        """Leave the network, so that others know at once."""
        self._node.close()

    def _drive(self, body: BodyState) -> Motors:
        electronics = self.electronics
        self._exchange(body)
        while not electronics.commanded:  # the robot is held at its start
            self._exchange(body)
        return electronics.motors()

    def _exchange(self, body: BodyState) -> None:
        """A period of the clock."""
        electronics = self.electronics
        if self._connection.poll():  # in each: one without an answer is long in lock step
            raise _Interrupted
        if electronics.tick % (IMAGE_EVERY * PERIOD) == 0:
            from robopolicy.unitree.images import depth_image

            for name, image in self._stones.depth_images().items():
                self._cameras[name].write(depth_image(image, 10**6 * electronics.tick, name))
        for state in self._line.send(electronics.state(body)):
            self._states.write(state)
        if self._patience:
            arrived = self._commands.take(self._patience if electronics.commanded else ASKING)
            for command, _ in arrived:
                electronics.obey(command)
            return
        now = time.monotonic()
        self._late += now - self._due > 1.5 * self._period and electronics.commanded
        self._due = max(self._due + self._period, now)
        time.sleep(max(0.0, self._due - now))
        for command, _ in self._commands.take():
            electronics.obey(command)


def _serve(connection: Connection, *settings: Any) -> None:
    """The process: plays every seed that comes."""
    # Ctrl-C, a closed terminal and `timeout` signal both processes. The other one ends this one.
    for request in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(request, signal.SIG_IGN)
    player = _Player(connection, *settings)
    try:
        while True:
            asked = connection.recv()
            if asked is not None:
                player.play(asked)
    except (EOFError, OSError):  # the other process has ended
        player.close()
