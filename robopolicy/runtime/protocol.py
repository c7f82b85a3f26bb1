"""The wire protocol between a robot and a policy. docs/export.md has a table of it.

A message is a little-endian header of 32 bytes and a payload. The header holds the magic `RPOL`, the version,
the kind, two zero bytes, the payload's length and CRC-32, a sequence number, and a time in nanoseconds.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.naming import one_line, shown
from robopolicy.runtime.manifest import Value
from robopolicy.settings import check_array

HEADER = struct.Struct("<4sBBHIIQQ")
MAGIC, VERSION = b"RPOL", 1
LONGEST_REASON = 500  # bytes
DIGEST = 32  # bytes


class ProtocolError(ValueError):
    """The peer sent something that is no message or is not allowed, or nothing in time."""


class Kind(IntEnum):
    """HELLO holds a manifest's digest, STOP a reason; robots send BEGIN and OBSERVATION, policies COMMAND."""

    HELLO = 1
    OBSERVATION = 2
    COMMAND = 3
    STOP = 4
    BEGIN = 5

    @property
    def with_article(self) -> str:
        """The name with its indefinite article."""
        return f"{'an' if self.name[0] in 'AEIOU' else 'a'} {self.name}"


class Message(NamedTuple):
    """A message.

    Attributes:
      kind: its kind.
      sequence: number of the observation, or of the observation that a command answers; else 0.
      time: ns; the robot's clock for an observation, the policy's computing time for a command.
      payload: its bytes.
    """

    kind: Kind
    sequence: int
    time: int
    payload: bytes

    @property
    def reason(self) -> str:
        """The reason of a STOP, in one printable line."""
        return one_line(self.payload.decode("utf-8", "replace")) or "no reason given"


def encode(kind: Kind, sequence: int = 0, time: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a message."""
    return HEADER.pack(MAGIC, VERSION, kind, 0, len(payload), zlib.crc32(payload), sequence, time) + payload


def stop(reason: str) -> bytes:
    """The bytes of a STOP."""
    return encode(Kind.STOP, payload=reason.encode(errors="replace")[:LONGEST_REASON])


class Decoder:
    """Splits a stream of bytes, in pieces of any size, into messages."""

    def __init__(self, lengths: Mapping[Kind, tuple[int, int]]) -> None:
        """`lengths` are the shortest and longest payload (bytes) of each kind that the peer may send."""
        self._lengths = lengths
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes of an incomplete message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Message]:
        """The messages that `data` completes.

        Raises ProtocolError for a bad checksum or, before the payload arrives, header. Feed no more then.
        """
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= HEADER.size:
            header = HEADER.unpack_from(self._buffer)
            kind, length = self._check_header(header)
            end = HEADER.size + length
            if len(self._buffer) < end:
                return messages
            payload = bytes(self._buffer[HEADER.size : end])
            del self._buffer[:end]
            if zlib.crc32(payload) != header[5]:
                raise ProtocolError(f"{kind.with_article} was damaged in transit: its checksum differs")
            messages.append(Message(kind, header[6], header[7], payload))
        if self._buffer and not MAGIC.startswith(bytes(self._buffer[:4])):
            raise ProtocolError("the peer does not use this protocol")
        return messages

    def _check_header(self, header: tuple[Any, ...]) -> tuple[Kind, int]:
        magic, version, kind, zero, length, _, _, _ = header
        if magic != MAGIC:
            raise ProtocolError("the peer does not use this protocol")
        if version != VERSION:
            raise ProtocolError(f"the peer uses version {version} of the protocol: this is {VERSION}")
        if kind not in self._lengths or zero:
            raise ProtocolError(f"this peer must not send a message of kind {kind}")
        shortest, longest = self._lengths[kind]
        if not shortest <= length <= longest:
            allowed = f"{shortest}" if shortest == longest else f"{shortest} to {longest}"
            raise ProtocolError(f"{Kind(kind).with_article} has {length} bytes: it must have {allowed}")
        return Kind(kind), length


def pack(values: Mapping[str, Value], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as a payload: sorted by name, row by row, little-endian.

    Raises ValueError for no mapping, a missing array, and one of another shape or dtype than in `values`.
    """
    if not isinstance(arrays, Mapping):
        raise ValueError(f"the arrays are {shown(arrays)}: they must be a mapping with {sorted(values)}")
    parts = []
    for name in sorted(values):
        value, array = values[name], arrays.get(name)
        check_array(name, array, value.shape, value.dtype)
        parts.append(np.asarray(array, np.dtype(value.dtype).newbyteorder("<")).tobytes())
    return b"".join(parts)


def unpack(values: Mapping[str, Value], payload: bytes) -> dict[str, NDArray[Any]]:
    """The arrays in a payload that `pack` made. Its length must be `payload_size(values)`."""
    arrays, start = {}, 0
    for name in sorted(values):
        value = values[name]
        dtype = np.dtype(value.dtype).newbyteorder("<")
        flat = np.frombuffer(payload, dtype, value.size // dtype.itemsize, start)
        arrays[name] = flat.reshape(value.shape).astype(value.dtype, copy=False)
        start += value.size
    return arrays


def payload_size(values: Mapping[str, Value]) -> int:
    """Size of a payload, bytes."""
    return sum(value.size for value in values.values())
