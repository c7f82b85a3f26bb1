"""The decoder restores messages from pieces of any size, and refuses invalid bytes."""

import json
import random
import struct

import numpy as np
import pytest
from toy_bundle import manifest, observations

from robopolicy.runtime.manifest import parse
from robopolicy.runtime.protocol import (
    HEADER,
    Decoder,
    Kind,
    Message,
    ProtocolError,
    encode,
    pack,
    payload_size,
    stop,
    unpack,
)

LENGTHS = {Kind.HELLO: (32, 32), Kind.COMMAND: (8, 8), Kind.STOP: (0, 500)}
STREAM = [
    (Kind.HELLO, 0, 0, b"h" * 32),
    (Kind.COMMAND, 1, 700, b"12345678"),
    (Kind.COMMAND, 2**64 - 1, 2**64 - 1, b"abcdefgh"),
    (Kind.STOP, 0, 0, b""),
]


def inputs():
    return parse(json.dumps({**manifest(), "files": {}}).encode()).inputs


def pieces(data, rng):
    while data:
        size = rng.choice((1, 2, 5, 31, 32, 33, 1000))
        yield data[:size]
        data = data[size:]


def test_the_decoder_restores_messages_from_pieces_of_any_size():
    rng = random.Random(0)
    data = b"".join(encode(*message) for message in STREAM)
    for _ in range(200):
        decoder = Decoder(LENGTHS)
        messages = [message for piece in pieces(data, rng) for message in decoder.feed(piece)]
        assert messages == [Message(*message) for message in STREAM]
        assert decoder.pending == 0


def test_unpack_restores_what_pack_packed():
    arrays = {name: array[0] for name, array in observations().items()}
    payload = pack(inputs(), arrays)
    assert len(payload) == payload_size(inputs()) == 4 * (2 + 4 * 5)
    assert payload[:8] == arrays["felt"].astype("<f4").tobytes()  # sorted by name
    for name, array in unpack(inputs(), payload).items():
        np.testing.assert_array_equal(array, arrays[name])
    with pytest.raises(ValueError, match=r"felt is None: it must be float32\[2\]"):
        pack(inputs(), {"image": arrays["image"]})
    with pytest.raises(ValueError, match=r"felt is float64\[2\]"):
        pack(inputs(), {**arrays, "felt": arrays["felt"].astype(float)})
    with pytest.raises(
        ValueError, match=r"^the arrays are None: they must be a mapping with \['felt', 'image'\]$"
    ):
        pack(inputs(), None)


def header(magic=b"RPOL", version=1, kind=Kind.COMMAND, zero=0, length=8, crc=0):
    return HEADER.pack(magic, version, kind, zero, length, crc, 1, 1)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"GET / HTTP/1.1\r\n", "does not use this protocol"),
        (b"\x00", "does not use this protocol"),
        (header(magic=b"RPOX"), "does not use this protocol"),
        (header(version=2), "version 2 of the protocol: this is 1"),
        (header(kind=Kind.OBSERVATION), "this peer must not send a message of kind 2"),
        (header(kind=77), "kind 77"),
        (header(zero=1), "must not send"),
        (header(length=9), "a COMMAND has 9 bytes: it must have 8"),
        (header(length=2**32 - 1), "4294967295 bytes"),
        (header(kind=Kind.STOP, length=501), "it must have 0 to 500"),
        (header() + b"12345678", "its checksum differs"),
    ],
)
def test_invalid_bytes_are_refused_before_the_payload_arrives(data, message):
    with pytest.raises(ProtocolError) as caught:
        Decoder(LENGTHS).feed(data)
    assert message in str(caught.value)


def test_a_reason_is_one_printable_line():
    assert Message(Kind.STOP, 0, 0, b"\xff\x00a\nb\x1b[31m").reason.isprintable()
    assert Message(Kind.STOP, 0, 0, b"").reason == "no reason given"
    assert Decoder(LENGTHS).feed(stop("x" * 1000))[0].payload == b"x" * 500


def test_ten_thousand_corrupted_streams_give_valid_messages_or_are_refused():
    rng = random.Random(1)
    valid = b"".join(encode(*message) for message in STREAM)
    longest = HEADER.size + 500
    refused = 0
    for _ in range(10_000):
        data = bytearray(valid)
        for _ in range(rng.choice((1, 1, 3))):
            at = rng.randrange(len(data) or 1)
            change = rng.randrange(4)
            if change == 0 and data:
                data[at] ^= 1 << rng.randrange(8)
            elif change == 1:
                del data[at : at + rng.choice((1, 4, 40))]
            elif change == 2:
                data[at:at] = rng.randbytes(rng.choice((1, 4, 40)))
            else:
                data[at : at + 4] = struct.pack("<I", rng.choice((0, 7, 2**31, 2**32 - 1)))
        decoder = Decoder(LENGTHS)
        try:
            for piece in pieces(bytes(data), rng):
                for message in decoder.feed(piece):
                    assert LENGTHS[message.kind][0] <= len(message.payload) <= LENGTHS[message.kind][1]
                assert decoder.pending <= longest
        except ProtocolError:
            refused += 1
    assert refused > 8000
