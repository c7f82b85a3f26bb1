"""The robot's side: what a vendor's SDK has to fill, and the loop that drives it in real time."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.link import Link
from robopolicy.runtime.manifest import Manifest
from robopolicy.runtime.protocol import Kind, Message, ProtocolError, encode, pack, unpack

MISSES = 3
LATE = 0.1  # of a control period: a step that begins later than that was begun late
SLACK = 1e-6  # of a limit, for rounding


class Robot(Protocol):
    """A robot, as `Driver` sees it. Every method must return well within a control period."""

    def finished(self) -> bool:
        """Whether there is nothing more to do."""

    def observe(self) -> Mapping[str, NDArray[Any]]:
        """The sensors' latest readings, as `inputs` of the manifest say."""

    def act(self, command: NDArray[np.float32]) -> None:
        """Begin to carry out a command [A], in the manifest's units and within its limits."""

    def hold(self) -> None:
        """A step without a command: do what is safest for the length of one."""

    def stop(self, reason: str) -> None:
        """Come to rest by what is on the robot alone, and stay there. It may be called at any moment."""


@dataclass
class Record:
    """How it went. Times in seconds.

    Attributes:
      steps: control periods that were begun.
      missed: those in which no command came in time; late: those that the robot itself began late.
      round_trips: from an observation to its command; thinking: what the policy took of that.
      jitter: how far each step's beginning was from where it was due.
      stopped: why the safe stop was needed, or None.
    """

    steps: int = 0
    missed: int = 0
    late: int = 0
    round_trips: list[float] = field(default_factory=list)
    thinking: list[float] = field(default_factory=list)
    jitter: list[float] = field(default_factory=list)
    stopped: str | None = None

    def told(self) -> dict[str, Any]:
        """All of it as JSON holds it, times by their median, 99th percentile and worst."""
        times = {"round_trip": self.round_trips, "thinking": self.thinking, "jitter": self.jitter}
        return {
            "steps": self.steps,
            "deadlines_missed": self.missed,
            "share_missed": self.missed / max(1, self.steps),
            "begun_late": self.late,
            **{name: _summary(found) for name, found in times.items()},
            "stopped": self.stopped,
        }


def _summary(found: list[float]) -> dict[str, float] | None:
    if not found:
        return None
    return {
        "p50": float(np.quantile(found, 0.5)),
        "p99": float(np.quantile(found, 0.99)),
        "max": max(found),
    }


class Driver:
    """Drives a robot by the policy at the other end of a link, a step every control period of wall time.

    A step without a command in time is held; `misses` of them in a row, or anything that this protocol does
    not allow, and the robot is stopped. It is stopped at the end in any case.
    """

    def __init__(self, link: Link, manifest: Manifest, misses: int = MISSES) -> None:
        if misses < 1:
            raise ValueError(f"misses is {misses}: it must be 1 or more")
        self._link, self._manifest, self._misses = link, manifest, misses
        self._sequence = self._heard = 0
        self.record = Record()

    def run(self, robot: Robot, seconds: float) -> str | None:
        """Drive until the robot has finished or `seconds` have passed.

        Returns why the safe stop was needed, or None; what the robot itself raises is raised, once it was
        told to stop.
        """
        reason = "the drive has ended"
        try:
            self._loop(robot, seconds)
        except (ProtocolError, ConnectionError) as error:
            reason = self.record.stopped = str(error)
        except BaseException as error:
            reason = f"the robot's side failed: {type(error).__name__}"
            raise
        finally:
            robot.stop(reason)
        return self.record.stopped

    def _loop(self, robot: Robot, seconds: float) -> None:
        record, period = self.record, self._manifest.control_period
        began = due = time.monotonic()
        in_a_row = 0
        while not robot.finished() and due - began < seconds - 1e-9:
            time.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            record.steps += 1
            record.jitter.append(now - due)
            record.late += now - due > LATE * period
            self._sequence += 1
            observation = pack(self._manifest.inputs, robot.observe())
            message = encode(Kind.OBSERVATION, self._sequence, time.monotonic_ns(), observation)
            self._link.send(message, self._manifest.deadline)
            sent = time.monotonic()
            answer = self._answer(now + self._manifest.deadline)
            if answer is None:
                record.missed += 1
                in_a_row += 1
                if in_a_row >= self._misses:
                    raise ProtocolError(f"no command came in time, {in_a_row} times in a row")
                robot.hold()
            else:
                in_a_row = 0
                taken = time.monotonic() - sent
                record.round_trips.append(taken)
                record.thinking.append(min(1e-9 * answer.time, taken))  # a peer may say anything
                robot.act(self._checked(answer))
            due = max(due + period, time.monotonic())  # what was lost is not caught up with

    def _answer(self, until: float) -> Message | None:
        """The command for the latest observation, or None where it has not come at `until`."""
        while True:
            message = self._link.receive(until)
            if message is None:
                return None
            if message.kind is Kind.STOP:
                raise ConnectionError(f"the policy stops: {message.reason}")
            if message.kind is not Kind.COMMAND:
                raise ProtocolError(f"a {message.kind.name} came in place of a COMMAND")
            if not self._heard < message.sequence <= self._sequence:
                raise ProtocolError(
                    f"a command for observation {message.sequence} came: {self._heard + 1} to "
                    f"{self._sequence} are to be answered"
                )
            self._heard = message.sequence
            if message.sequence == self._sequence:
                return message

    def _checked(self, message: Message) -> NDArray[np.float32]:
        value = self._manifest.outputs["command"]
        command = unpack({"command": value}, message.payload)["command"]
        slack = SLACK * np.maximum(1.0, np.abs(value.high))
        fine = (command >= value.low - slack) & (command <= value.high + slack)
        if not fine.all():
            at = int(np.argmin(fine))
            raise ProtocolError(
                f"the command for {value.entries[at]} is {command[at]:g} {value.units[at]}: it must be from "
                f"{value.low[at]:g} to {value.high[at]:g}"
            )
        return command
