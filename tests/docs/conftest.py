"""A small world in which what the documentation says is done."""

import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path

import documented
import jax
import numpy as np
import pytest

from robopolicy.cli import main
from robopolicy.export import onnx
from robopolicy.policies.catalogue import by_path, describe

ES = "--population 2 --generations 1 --episode-seconds 0.5 --workers 1 --patch 4 --held-out 2"
DEMOS = "--episodes 2 --image-size 64 --balls 2 --workers 1"
BC = (
    "--attention positive(m=4) --preset tiny --patch 16 --samples 16 --batch 8 --validation 0.5 --steps 2 "
    "--validate-every 2 --workers 1"
)


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of pytest-xdist share, and which is new for every run of the tests."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "documented"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def converted_once(shared):
    """Policies are converted to ONNX once each, which takes longer than all else that these tests do, and JAX
    does not optimise what it compiles."""
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

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx, "_convert", remembered)
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="session")
def world(shared, converted_once):
    """A folder with runs/, datasets/ and bundles, all of them tiny."""
    folder = shared / "world"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "made").exists():
            folder.mkdir()
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)  # runs remember where their data is
                _make()
            (shared / "made").touch()
    return folder


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """The current folder: a copy of the world."""
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    monkeypatch.chdir(copy)
    return copy


def _make():
    def do(words):
        assert main(words.split()) == 0, words

    do(f"train es --out runs/mine {ES}")
    do(f"demos --out datasets/sweep-v0 {DEMOS}")
    do(f"train bc --data datasets/sweep-v0 --out runs/clone {BC}")
    do("export runs/mine --out bundle --observations 5")
    for name, cloned in documented.runs().items():
        if not Path("runs", name).exists():
            shutil.copytree(Path("runs", "clone" if cloned else "mine"), Path("runs", name))
    shutil.copytree("datasets/sweep-v0", "datasets/small-v0")
    shutil.copytree("runs", "experiments")
