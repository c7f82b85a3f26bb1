"""What a robot and a policy say to each other, byte by byte. docs/export.md has it in a table.

A message is a header of 32 bytes, little-endian, and a payload: magic `RPOL`, version, kind, two zero bytes,
length and CRC-32 of the payload, sequence number, and a time in nanoseconds.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.manifest import Value, printable

HEADER = struct.Struct("<4sBBHIIQQ")
MAGIC, VERSION = b"RPOL", 1
LONGEST_REASON = 500  # bytes
DIGEST = 32  # bytes


class ProtocolError(ValueError):
    """Bytes that are no message, or not the one that is due."""


class Kind(IntEnum):
    """HELLO: a manifest's digest, from both; OBSERVATION: from the robot; COMMAND: its answer; STOP: why."""

    HELLO = 1
    OBSERVATION = 2
    COMMAND = 3
    STOP = 4


class Message(NamedTuple):
    """A message.

    Attributes:
      kind: what it is.
      sequence: number of the observation that it is, or that it answers; 0 of others.
      time: ns; of an observation the robot's clock, of a command what the policy took.
      payload: its bytes.
    """

    kind: Kind
    sequence: int
    time: int
    payload: bytes

    @property
    def reason(self) -> str:
        """Why, of a STOP: one printable line."""
        return printable(self.payload.decode("utf-8", "replace")) or "no reason given"


def encode(kind: Kind, sequence: int = 0, time: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a message."""
    return HEADER.pack(MAGIC, VERSION, kind, 0, len(payload), zlib.crc32(payload), sequence, time) + payload


def stop(reason: str) -> bytes:
    """The bytes of a STOP."""
    return encode(Kind.STOP, payload=reason.encode()[:LONGEST_REASON])


class Decoder:
    """Messages out of a stream of bytes that may come in any pieces."""

    def __init__(self, lengths: Mapping[Kind, tuple[int, int]]) -> None:
        """`lengths`: the kinds that may come, and the shortest and longest payload of each."""
        self._lengths = lengths
        self._held = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of a message that is not complete."""
        return len(self._held)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes.

        Raises ProtocolError as soon as they can be none, and before anything long is waited for; the stream
        is of no use after that.
        """
        self._held += data
        found: list[Message] = []
        while len(self._held) >= HEADER.size:
            header = HEADER.unpack_from(self._held)
            kind, length = self._checked(header)
            end = HEADER.size + length
            if len(self._held) < end:
                return found
            payload = bytes(self._held[HEADER.size : end])
            del self._held[:end]
            if zlib.crc32(payload) != header[5]:
                raise ProtocolError(f"a {kind.name} was damaged on its way: its checksum differs")
            found.append(Message(kind, header[6], header[7], payload))
        if self._held and not MAGIC.startswith(bytes(self._held[:4])):
            raise ProtocolError("the peer sends something else than this protocol")
        return found

    def _checked(self, header: tuple[Any, ...]) -> tuple[Kind, int]:
        magic, version, kind, zero, length, _, _, _ = header
        if magic != MAGIC:
            raise ProtocolError("the peer sends something else than this protocol")
        if version != VERSION:
            raise ProtocolError(f"the peer speaks version {version} of the protocol: this is {VERSION}")
        if kind not in self._lengths or zero:
            raise ProtocolError(f"a message of kind {kind} must not come from this peer")
        shortest, longest = self._lengths[kind]
        if not shortest <= length <= longest:
            due = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
            raise ProtocolError(f"a {Kind(kind).name} has {length} bytes: it must have {due}")
        return Kind(kind), length


def pack(values: Mapping[str, Value], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as a payload: in the order of their names, row by row, little-endian.

    Raises ValueError for an array that is not as `values` say.
    """
    parts = []
    for name in sorted(values):
        value, array = values[name], arrays.get(name)
        if array is None or array.shape != value.shape or array.dtype != value.dtype:
            what = "missing" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(f"{name} is {what}: it must be {value.dtype}{list(value.shape)}")
        parts.append(array.astype(np.dtype(value.dtype).newbyteorder("<"), copy=False).tobytes())
    return b"".join(parts)


def unpack(values: Mapping[str, Value], payload: bytes) -> dict[str, NDArray[Any]]:
    """What `pack` made a payload of; its length must have been checked."""
    arrays, at = {}, 0
    for name in sorted(values):
        value = values[name]
        kind = np.dtype(value.dtype).newbyteorder("<")
        flat = np.frombuffer(payload, kind, value.size // kind.itemsize, at)
        arrays[name] = flat.reshape(value.shape).astype(value.dtype, copy=False)
        at += value.size
    return arrays


def payload_size(values: Mapping[str, Value]) -> int:
    """Bytes of a payload."""
    return sum(value.size for value in values.values())
