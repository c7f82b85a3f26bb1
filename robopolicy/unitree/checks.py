"""Checks of a robot's low state: which messages count, and which readings are unsafe."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robopolicy.control.estimate import Sensed
from robopolicy.control.robot import JOINTS, Robot
from robopolicy.settings import check_count, check_number
from robopolicy.unitree.records import Record, checksum

PERIOD = 2  # ms, between two low states
FASTEST = 35.0  # rad/s, above the 30.1 of the fastest joints in Unitree's model of the Go2
NOISE = 0.05  # rad, of a joint's reading
# Largest readings that count. Those of the IMU are beyond the ranges of common ones, 35 rad/s and 157 m/s2.
MOST = {"gyroscope": 50.0, "accelerometer": 500.0, "dq": 2 * FASTEST}


class BadMessage(ValueError):  # noqa: N818 (a message)
    """A message that is ignored. `kind` is a word or two for counting."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Unsafe(RuntimeError):  # noqa: N818 (the state of a robot)
    """A sound message holds a reading for which all motors damp."""


@dataclass(frozen=True)
class SafetyConfig:
    """Limits beyond which all motors damp; `silence` is a stop. All defaults but the damping's are ours.

    Attributes:
      lost: s without a valid low state.
      tilt: rad, largest roll or pitch.
      beyond: rad, how far a joint may be beyond its limits.
      temperature: of a motor, degrees Celsius.
      packets: that a motor may lose in a drive, by its own count.
      silence: policy steps in which the driver neither acts nor holds.
      damping: N m s/rad, of all motors in the end; that of Unitree's example `state_machine`.
    """

    lost: float = 0.04
    tilt: float = 0.8
    beyond: float = 0.15
    temperature: int = 85
    packets: int = 50
    silence: int = 4
    damping: float = 2.0

    def __post_init__(self) -> None:
        check_number("lost", self.lost, 0.004, 1.0)
        check_number("tilt", self.tilt, 0.1, math.pi / 2)
        check_number("beyond", self.beyond, 0.0, 1.0)
        check_number("damping", self.damping, 0.1, 20.0)
        check_count("temperature", self.temperature, 30, 120)
        check_count("packets", self.packets, 0, 10**6)
        check_count("silence", self.silence, 1, 100)


class StateCheck:
    """Checks each low state of one robot against its table and the last valid one."""

    def __init__(self, robot: Robot, config: SafetyConfig) -> None:
        self._robot, self._config = robot, config
        self._low, self._high = np.array(robot.limits).T
        self._tick: int | None = None
        self._joints = np.zeros(JOINTS)
        self._lost: np.ndarray | None = None
        self._jump = round(1e3 * config.lost)  # ms

    def __call__(self, state: Record) -> int:
        """The time from the last valid state to `state` (ms); 0 for the first state.

        Raises BadMessage for a state that does not count, and Unsafe, each in one line.
        """
        if int(state["crc"]) != checksum(state):
            raise BadMessage(
                "checksum", f"rt/lowstate has the crc {int(state['crc']):#x}: it must be {checksum(state):#x}"
            )
        tick = int(state["tick"])
        passed = 0 if self._tick is None else (tick - self._tick) % 2**32
        if passed >= 2**31 or (passed == 0 and self._tick is not None):
            raise BadMessage("old", f"rt/lowstate has the tick {tick} after {self._tick}: it must be later")
        if passed > self._jump:
            raise BadMessage("jump", f"rt/lowstate jumps by {passed} ms to tick {tick}, over {self._jump} ms")
        joints, motors = self._numbers(state)
        if self._tick is not None:
            most = NOISE + 1e-3 * FASTEST * passed
            at = int(np.abs(joints - self._joints).argmax())
            moved = float(joints[at] - self._joints[at])
            if abs(moved) > most:
                raise BadMessage(
                    "jump",
                    f"rt/lowstate turns {self._robot.joints[at]!r} by {moved:.3g} rad in {passed} ms: "
                    f"it may turn by {most:.3g}",
                )
        self._tick, self._joints = tick, joints
        self._check_safe(state, joints, motors)
        return passed

    def _numbers(self, state: Record) -> tuple[np.ndarray, Record]:
        imu, motors = state["imu_state"], state["motor_state"][:JOINTS]
        spare = state["motor_state"][JOINTS:]
        for whose, name, values in (
            *(("the IMU's {}", name, imu[name]) for name in ("quaternion", "gyroscope", "accelerometer")),
            *(("{} of a motor", name, motors[name]) for name in ("q", "dq")),
        ):
            title = whose.format(name)
            if not np.isfinite(values).all():
                raise BadMessage("not finite", f"rt/lowstate: {title} is not finite")
            largest, most = float(np.abs(values).max()), MOST.get(name, math.inf)
            if largest > most:
                raise BadMessage("range", f"rt/lowstate: {title} is {largest:.3g}, over {most:g}")
        if (spare["q"] != 0).any():
            slot = JOINTS + int(np.flatnonzero(spare["q"] != 0)[0])
            raise BadMessage(
                "joint count",
                f"rt/lowstate has a motor {slot} at {float(state['motor_state']['q'][slot]):.3g} rad: "
                f"a {self._robot.title} has {JOINTS} motors",
            )
        norm = float(np.linalg.norm(imu["quaternion"]))
        if abs(norm - 1.0) > 0.05:
            raise BadMessage("quaternion", f"rt/lowstate: the IMU's quaternion has norm {norm:.3g}, not 1")
        return motors["q"].astype(float), motors

    def _check_safe(self, state: Record, joints: np.ndarray, motors: Record) -> None:
        config, names = self._config, self._robot.joints
        wrong = (joints < self._low - config.beyond) | (joints > self._high + config.beyond)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise Unsafe(
                f"joint {names[at]!r} is at {joints[at]:.3g} rad: its limits are {self._low[at]:.3g} and "
                f"{self._high[at]:.3g}, give or take {config.beyond:g}"
            )
        w, x, y, z = state["imu_state"]["quaternion"].astype(float)
        roll = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
        pitch = math.asin(min(1.0, max(-1.0, 2 * (w * y - z * x))))
        if max(abs(roll), abs(pitch)) > config.tilt:
            raise Unsafe(f"the trunk is tilted by {max(abs(roll), abs(pitch)):.3g} rad, over {config.tilt:g}")
        if (motors["temperature"] > config.temperature).any():
            at = int(motors["temperature"].argmax())
            raise Unsafe(
                f"motor {names[at]!r} has {motors['temperature'][at]} degrees Celsius, "
                f"over {config.temperature}"
            )
        lost = motors["lost"].astype(np.int64)
        self._lost = lost if self._lost is None else self._lost
        if (lost - self._lost > config.packets).any():
            at = int((lost - self._lost).argmax())
            number = lost[at] - self._lost[at]
            raise Unsafe(f"motor {names[at]!r} has lost {number} packets, over {config.packets}")


def sensed_of(state: Record) -> Sensed:
    """The readings of a low state, as the estimator takes them."""
    imu, motors = state["imu_state"], state["motor_state"][:JOINTS]
    parts = (imu["quaternion"], imu["gyroscope"], imu["accelerometer"], motors["q"], motors["dq"])
    return Sensed(*(part.astype(np.float64) for part in parts))
