"""For all tests."""

import hashlib
import json
import os
import shutil

# Two batched QR decompositions at once, as in draws for many keys, each wait for a thread of JAX's pool while
# they hold one: with the two threads that it has on two cores, for ever. JAX reads the pool's size from here.
os.environ.setdefault("NPROC", "8")


import numpy as np
import pytest

from robopolicy.export import onnx
from robopolicy.policies.catalogue import by_path, describe


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of pytest-xdist share, and which is new for every run of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def conversions(shared):
    """A stand-in for the conversion to ONNX that converts each policy once, whoever asks."""
    convert = onnx._convert

    def remembered(config, features, path, parameters, units):
        told = hashlib.sha256(json.dumps([describe(config), units and units._asdict()], default=str).encode())
        for name, array in sorted(by_path(features).items()):
            told.update(name.encode() + np.asarray(array).tobytes())
        told.update(b"" if parameters is None else np.asarray(parameters, np.float32).tobytes())
        kept = shared / f"{told.hexdigest()}.onnx"
        if not kept.exists():
            convert(config, features, kept, parameters, units)
        shutil.copy(kept, path)

    return remembered


@pytest.fixture(scope="module")
def converted_once(conversions):
    """For tests of what is done with a policy, which spend most of their time on converting the same ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "_convert", conversions)
        yield
