"""Rollout workers are processes of their own: they find the toy environment through the path."""

import os
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """Five demonstrations of the toy, with noise; nobody changes them."""
    from toy_recordings import recorded  # which the path above has made known

    out = tmp_path_factory.mktemp("recorded") / "toy-v0"
    recorded(out, noise=0.1)
    return out
