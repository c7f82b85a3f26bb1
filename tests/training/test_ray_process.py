"""What Ray leaves behind in the process of a trainer."""

import importlib.util
import subprocess
import sys

import pytest

CODE = """
import signal
import toy
from robopolicy.training.ray_pool import RayPool
from robopolicy.training.worker import EnvironmentSpec
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
pool = RayPool([EnvironmentSpec(toy.ID, {}, "toy")], toy.policy_graph(), 1)
signal.raise_signal(signal.SIGTERM)
pool.close()
signal.raise_signal(signal.SIGTERM)
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")
def test_sigterm_keeps_its_handler_while_a_ray_pool_runs_and_after_it():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "handled\n" * 2), done.stderr
