"""Unitree's low-level messages as NumPy records, their bytes on the wire and their checksum.

Names, types and order of the fields are those of the IDL that Unitree publishes for the Go2 (package
`unitree_go` of unitree_sdk2). A record has the layout of the C struct, since the checksum is over that; the
wire has the layout of plain CDR, which aligns numbers but not structs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Record = NDArray[Any]  # [], of one of the types below
SLOTS = 20  # of motors in a message; a Go2 uses the first twelve
CDR_LITTLE_ENDIAN = b"\x00\x01\x00\x00"
NO_POSITION, NO_VELOCITY = 2.146e9, 16000.0  # PosStopF and VelStopF: this part of a command is off
SERVO = 1  # mode of a motor that obeys commands
HEAD, LOW_LEVEL = (0xFE, 0xEF), 0xFF


def _struct(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    return np.dtype(list(fields), align=True)


_BEGIN = (
    *(("head", "u1", 2), ("level_flag", "u1"), ("frame_reserve", "u1"), ("sn", "<u4", 2)),
    *(("version", "<u4", 2), ("bandwidth", "<u2")),
)
_MOTOR_NUMBERS = "q dq ddq tau_est q_raw dq_raw ddq_raw".split()
IMU_STATE = _struct(
    *(("quaternion", "<f4", 4), ("gyroscope", "<f4", 3), ("accelerometer", "<f4", 3), ("rpy", "<f4", 3)),
    ("temperature", "u1"),
)
MOTOR_STATE = _struct(
    ("mode", "u1"),
    *((name, "<f4") for name in _MOTOR_NUMBERS),
    *(("temperature", "u1"), ("lost", "<u4"), ("reserve", "<u4", 2)),
)
MOTOR_CMD = _struct(
    ("mode", "u1"), *((name, "<f4") for name in ("q", "dq", "tau", "kp", "kd")), ("reserve", "<u4", 3)
)
BMS_STATE = _struct(
    *(("version_high", "u1"), ("version_low", "u1"), ("status", "u1"), ("soc", "u1"), ("current", "<i4")),
    *(("cycle", "<u2"), ("bq_ntc", "u1", 2), ("mcu_ntc", "u1", 2), ("cell_vol", "<u2", 15)),
)
BMS_CMD = _struct(("off", "u1"), ("reserve", "u1", 3))
LOW_STATE = _struct(
    *_BEGIN,
    *(("imu_state", IMU_STATE), ("motor_state", MOTOR_STATE, SLOTS), ("bms_state", BMS_STATE)),
    *(("foot_force", "<i2", 4), ("foot_force_est", "<i2", 4), ("tick", "<u4"), ("wireless_remote", "u1", 40)),
    *(("bit_flag", "u1"), ("adc_reel", "<f4"), ("temperature_ntc1", "u1"), ("temperature_ntc2", "u1")),
    *(
        ("power_v", "<f4"),
        ("power_a", "<f4"),
        ("fan_frequency", "<u2", 4),
        ("reserve", "<u4"),
        ("crc", "<u4"),
    ),
)
LOW_CMD = _struct(
    *_BEGIN,
    *(("motor_cmd", MOTOR_CMD, SLOTS), ("bms_cmd", BMS_CMD), ("wireless_remote", "u1", 40)),
    *(("led", "u1", 12), ("fan", "u1", 2), ("gpio", "u1"), ("reserve", "<u4"), ("crc", "<u4")),
)
# Names on the wire, within the module unitree_go::msg::dds_.
NAMES = {
    "IMUState_": IMU_STATE,
    "MotorState_": MOTOR_STATE,
    "MotorCmd_": MOTOR_CMD,
    "BmsState_": BMS_STATE,
    "BmsCmd_": BMS_CMD,
    "LowState_": LOW_STATE,
    "LowCmd_": LOW_CMD,
}
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))  # the bits of every byte


def new_command() -> Record:
    """A LOW_CMD [] that moves no motor."""
    command = np.zeros((), LOW_CMD)
    command["head"], command["level_flag"] = HEAD, LOW_LEVEL
    motors = command["motor_cmd"]
    motors["mode"], motors["q"], motors["dq"] = SERVO, NO_POSITION, NO_VELOCITY
    return command


def checksum(record: Record) -> int:
    """What the `crc` of a LOW_STATE or LOW_CMD [] must be: over the struct's 32-bit words before it.

    CRC-32 with the polynomial 0x04C11DB7, which begins with ones, shifts the highest bit of a word first and
    inverts nothing. zlib's has the same polynomial and shifts the lowest bit of a byte first, so the bits go
    to it in the opposite order. Bytes between the fields count as 0: NumPy does not always copy them.
    """
    content, used = np.zeros(record.dtype.itemsize, np.uint8), _layout(record.dtype).memory
    content[used] = np.frombuffer(record.tobytes(), np.uint8)[used]
    words = content.view("<u4")[:-1]
    mirrored = zlib.crc32(words.byteswap().tobytes().translate(_REVERSED)) ^ 0xFFFFFFFF
    return int.from_bytes(mirrored.to_bytes(4, "little").translate(_REVERSED), "big")


def sealed(record: Record) -> Record:
    """The `record` with its checksum written into it."""
    record["crc"] = checksum(record)
    return record


class Layout:
    """The bytes of a record on the wire: little-endian CDR behind its header of four bytes.

    memory: the places of its bytes in the record, in their order.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype
        at = 0
        wire: list[int] = []
        memory: list[int] = []
        for start, size in _numbers(dtype):
            at += -at % size
            wire += range(at, at + size)
            memory += range(start, start + size)
            at += size
        self._length = at
        self._wire, self.memory = np.array(wire), np.array(memory)

    def encode(self, record: Record) -> bytes:
        """The message of a `record` []."""
        content = np.zeros(self._length, np.uint8)
        content[self._wire] = np.frombuffer(record.tobytes(), np.uint8)[self.memory]
        return CDR_LITTLE_ENDIAN + content.tobytes()

    def decode(self, message: bytes) -> Record:
        """The record [] of a `message`. Raises ValueError for another encoding or length."""
        header, content = message[:4], message[4:]
        # The last two bytes of the header are options: how many bytes fill the message up to a whole word.
        if header[:2] != CDR_LITTLE_ENDIAN[:2] or not 0 <= len(content) - self._length < 4:
            raise ValueError(
                f"a message of {len(content)} bytes after its header begins with {header[:2].hex()}: "
                f"it must have {self._length} and begin with {CDR_LITTLE_ENDIAN[:2].hex()}"
            )
        record = np.zeros(self.dtype.itemsize, np.uint8)
        record[self.memory] = np.frombuffer(content, np.uint8)[self._wire]
        return record.view(self.dtype)[0:1].reshape(())


@cache
def _layout(dtype: np.dtype[Any]) -> Layout:
    return Layout(dtype)


def _numbers(dtype: np.dtype[Any], start: int = 0) -> Iterator[tuple[int, int]]:
    """Offset and size (bytes) of every number in memory, in their order."""
    if dtype.subdtype is not None:
        each, (count,) = dtype.subdtype
        for index in range(count):
            yield from _numbers(each, start + index * each.itemsize)
    elif dtype.fields is not None:
        for name in dtype.names or ():
            inner, offset = dtype.fields[name][:2]
            yield from _numbers(inner, start + offset)
    else:
        yield start, dtype.itemsize
