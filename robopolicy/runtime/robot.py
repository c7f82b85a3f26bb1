"""The robot's side: the methods that a robot implements, and the real-time loop that drives it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.naming import counted
from robopolicy.runtime.link import Link
from robopolicy.runtime.manifest import Limits, Manifest
from robopolicy.runtime.protocol import Kind, Message, ProtocolError, encode, pack, unpack
from robopolicy.settings import check_count, check_number

MISSES, MOST_MISSES = 3, 10**9
INTERRUPTED = "interrupted"  # reason of a safe stop after Ctrl-C
LATE = 0.1  # share of a control period by which a step may begin late without being counted


class Robot(Protocol):
    """The methods that `Driver` calls. Each must return well within a control period."""

    def finished(self) -> bool:
        """Whether the task has ended."""

    def observe(self) -> Mapping[str, NDArray[Any]]:
        """The latest sensor readings, with the names, shapes and dtypes of the manifest's `inputs`."""

    def act(self, command: NDArray[np.float32]) -> None:
        """Start to execute a command [A], in the manifest's units and within its limits."""

    def hold(self) -> None:
        """Bridge one step without a command in the safest way."""

    def stop(self, reason: str) -> None:
        """Come to rest without the policy, and stay at rest. It may be called at any time."""


@dataclass
class Record:
    """Statistics of a drive. Times in seconds.

    Attributes:
      steps: control periods that have begun.
      missed: steps without a command in time; late: steps that the robot's side began late.
      round_trips: times from an observation to its command; thinking: the policy's share of each.
      jitter: delay of the beginning of each step.
      stopped: the reason of a safe stop of the latest drive, or None.
    """

    steps: int = 0
    missed: int = 0
    late: int = 0
    round_trips: list[float] = field(default_factory=list)
    thinking: list[float] = field(default_factory=list)
    jitter: list[float] = field(default_factory=list)
    stopped: str | None = None

    def summary(self) -> dict[str, Any]:
        """The record for JSON, with the median, 99th percentile and maximum of all times."""
        times = {"round_trip": self.round_trips, "thinking": self.thinking, "jitter": self.jitter}
        return {
            "steps": self.steps,
            "deadlines_missed": self.missed,
            "share_missed": self.missed / max(1, self.steps),
            "begun_late": self.late,
            **{name: percentiles(seconds) if seconds else None for name, seconds in times.items()},
            "stopped": self.stopped,
        }


def percentiles(seconds: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Median, 99th percentile and maximum of one time or more."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: float(np.quantile(seconds, share)) for name, share in shares.items()}


def wait_until(due: float) -> float:
    """Sleep until `due` (s of `time.monotonic`), and return it."""
    time.sleep(max(0.0, due - time.monotonic()))
    return due


class Driver:
    """Drives a robot with the policy at the other end of a link, one step per control period of wall time.

    A step without a command in time is bridged by `Robot.hold`. After `misses` such steps in a row, or an
    error of the connection or the protocol, the driver stops the robot. It also stops the robot at the end.

    Each drive begins an episode: a policy that remembers starts anew. It remembers across held steps.
    """

    def __init__(
        self,
        link: Link,
        manifest: Manifest,
        misses: int = MISSES,
        wait: Callable[[float], float] = wait_until,
    ) -> None:
        """`wait` gets the time at which a step is due (s of `time.monotonic`), and returns when it was due.

        A robot that has a clock of its own waits for that. An error in `wait` counts as the robot's;
        ConnectionError is a safe stop.
        """
        check_count("misses", misses, 1, MOST_MISSES)
        self._link, self._manifest, self._misses, self._wait = link, manifest, misses, wait
        self._limits = Limits(manifest.outputs["command"])
        self._sequence = self._answered = 0
        self.record = Record()

    def run(self, robot: Robot, seconds: float) -> str | None:
        """Drive until the robot has finished or `seconds` have passed.

        Returns the reason of a safe stop, or None. An exception of the robot's methods is raised again after
        `Robot.stop`, but ConnectionError is a safe stop. So is Ctrl-C, which is raised again.

        Raises ValueError, before the drive, unless `seconds` is a number of 0 or more, or infinite.
        """
        if seconds != math.inf:
            check_number("seconds", seconds, 0.0)
        self.record.stopped = None
        reason = "the drive has ended"
        try:
            self._loop(robot, seconds)
        except (ProtocolError, ConnectionError) as error:
            reason = self.record.stopped = str(error) or type(error).__name__
        except KeyboardInterrupt:
            reason = self.record.stopped = INTERRUPTED
            raise
        except BaseException as error:
            reason = f"the robot's side failed: {type(error).__name__}"
            raise
        finally:
            robot.stop(reason)
        return self.record.stopped

    def _loop(self, robot: Robot, seconds: float) -> None:
        record, period = self.record, self._manifest.control_period
        if self._manifest.remembers:
            self._link.send(encode(Kind.BEGIN))
        began = due = ready = time.monotonic()
        in_a_row = 0
        while not robot.finished() and max(due, ready) - began < seconds - 1e-9:
            planned, due = due, self._wait(due)
            now = time.monotonic()
            record.steps += 1
            record.jitter.append(now - due)
            record.late += now - due > LATE * period
            self._sequence += 1
            observation = pack(self._manifest.inputs, robot.observe())
            message = encode(Kind.OBSERVATION, self._sequence, time.monotonic_ns(), observation)
            sent = time.monotonic()
            self._link.send(message, self._manifest.deadline)
            answer = self._answer(now + self._manifest.deadline)
            if answer is None:
                record.missed += 1
                in_a_row += 1
                if in_a_row >= self._misses:
                    raise ProtocolError(f"no command came in time, {counted(in_a_row, 'times')} in a row")
                robot.hold()
            else:
                in_a_row = 0
                round_trip = time.monotonic() - sent
                record.round_trips.append(round_trip)
                record.thinking.append(min(1e-9 * answer.time, round_trip))  # the peer may send any number
                robot.act(self._checked(answer))
            # A late step shifts all later ones, unless the robot has a clock of its own.
            due = period + (max(due, ready) if due == planned else due)
            ready = time.monotonic()

    def _answer(self, until: float) -> Message | None:
        """The command for the latest observation, or None if it does not arrive before `until`."""
        while True:
            message = self._link.receive(until)
            if message is None:
                return None
            if message.kind is Kind.STOP:
                raise ConnectionError(f"the policy stops: {message.reason}")
            if message.kind is not Kind.COMMAND:
                raise ProtocolError(f"{message.kind.with_article} came in place of a COMMAND")
            if not self._answered < message.sequence <= self._sequence:
                raise ProtocolError(
                    f"a command for observation {message.sequence} came: it must be from "
                    f"{self._answered + 1} to {self._sequence}"
                )
            self._answered = message.sequence
            if message.sequence == self._sequence:
                return message

    def _checked(self, message: Message) -> NDArray[np.float32]:
        command = unpack({"command": self._manifest.outputs["command"]}, message.payload)["command"]
        try:
            self._limits.check(command)
        except ValueError as error:
            raise ProtocolError(f"the {error}") from error
        return command
