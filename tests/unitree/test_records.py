"""Unitree's records: their layout, their checksum, and their bytes on the wire."""

import numpy as np
import pytest

from robopolicy.unitree.records import LOW_CMD, LOW_STATE, NAMES, Layout, checksum, new_command


def shifted(data):
    """CRC-32 with the polynomial 0x04C11DB7, bit by bit, the highest bit of a byte first."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ 0x04C11DB7) & 0xFFFFFFFF if crc & 0x80000000 else crc << 1
    return crc


def drawn(dtype, seed=0):
    """A record of random bytes, and finite numbers."""
    rng = np.random.default_rng(seed)
    layout = Layout(dtype)
    length = len(layout.encode(np.zeros((), dtype))) - 4
    return layout.decode(b"\x00\x01\x00\x00" + rng.integers(0, 64, length, np.uint8).tobytes())


def test_structs_have_the_sizes_of_the_vendors():
    # Unitree's Python SDK writes them into its utils/crc.py.
    assert (LOW_CMD.itemsize, LOW_STATE.itemsize) == (812, 1180)


@pytest.mark.parametrize("dtype", [LOW_CMD, LOW_STATE], ids=["command", "state"])
def test_the_checksum_is_that_of_the_words_before_it(dtype):
    assert shifted(b"123456789") == 0x0376E6E7  # the catalogue's check of CRC-32/MPEG-2
    record = drawn(dtype)
    words = np.frombuffer(record.tobytes(), "<u4")[:-1]
    assert checksum(record) == shifted(words.astype(">u4").tobytes())
    record["crc"] ^= 1
    assert checksum(record) == shifted(words.astype(">u4").tobytes()), "it does not depend on itself"


def test_bytes_between_the_fields_do_not_count():
    record = drawn(LOW_STATE)
    content = record.reshape(1).view(np.uint8)
    padding = np.setdiff1d(np.arange(LOW_STATE.itemsize), Layout(LOW_STATE).memory)
    assert len(padding) > 100
    before = checksum(record)
    content[padding] = 0xFF
    assert checksum(record) == before


def test_a_new_command_moves_no_motor():
    command = new_command()
    assert command["head"].tolist() == [0xFE, 0xEF]
    assert command["level_flag"] == 0xFF
    motors = command["motor_cmd"]
    assert not any(motors[name].any() for name in ("kp", "kd", "tau"))
    assert checksum(command) == 0x6E577CD


@pytest.mark.parametrize("name", NAMES)
def test_records_come_back_from_the_wire(name):
    record = drawn(NAMES[name])
    again = Layout(NAMES[name]).decode(Layout(NAMES[name]).encode(record))
    assert again == record
    assert record.tobytes() != np.zeros((), NAMES[name]).tobytes()


@pytest.mark.parametrize("message", [b"", b"\x00\x01", b"\x00\x00\x00\x00" + bytes(808), bytes(812)])
def test_a_message_of_another_kind_is_refused(message):
    with pytest.raises(ValueError, match="it must have 808 and begin with 0001"):
        Layout(LOW_CMD).decode(message)


def test_a_message_of_another_length_is_refused():
    for length in (807, 812):
        with pytest.raises(ValueError, match=f"a message of {length} bytes"):
            Layout(LOW_CMD).decode(b"\x00\x01\x00\x00" + bytes(length))
