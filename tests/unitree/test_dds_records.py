"""Records have the bytes and the names of the vendor's messages."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

from robopolicy.unitree.dds import RECORDS
from robopolicy.unitree.records import NAMES, Layout


def plain(record):
    """A record as Cyclone DDS takes its own messages: objects, lists and numbers."""
    if record.dtype.names is None:
        return record.tolist()
    if record.shape:
        return [plain(one) for one in record]
    return SimpleNamespace(**{name: plain(record[name]) for name in record.dtype.names})


@pytest.mark.parametrize("name", NAMES)
def test_the_bytes_are_those_of_cyclone_dds(name):
    dtype = NAMES[name]
    record = np.frombuffer(
        np.random.default_rng(1).integers(0, 64, dtype.itemsize, np.uint8).tobytes(), dtype
    )
    theirs = RECORDS[name].__idl__.serialize(plain(record[0]))
    assert Layout(dtype).encode(record[0]) == theirs


def test_types_have_the_names_of_the_vendor():
    assert RECORDS["LowState_"].__idl__.idl_transformed_typename == "unitree_go::msg::dds_::LowState_"
