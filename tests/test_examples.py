"""The examples run, show what they say, and stay short."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
LONGER = ("own_robot.py",)  # two interfaces and what lies between them
sys.path.insert(0, str(ROOT / "tests" / "runtime"))

from toy_bundle import make_bundle  # noqa: E402 (of another folder of tests)


def shown(name, *words):
    """What an example prints."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *words],
        capture_output=True,
        text=True,
        timeout=600,
        # What is compiled runs for milliseconds.
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"},
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def numbers(pattern, text):
    return [tuple(map(float, found)) for found in re.findall(pattern, text)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_has_its_expected_output(path):
    text = path.read_text()
    assert path.name in LONGER or text.count("\n") < 60
    about = text.split('"""')[1]
    assert f"    python examples/{path.name}" in about
    assert "Expected: " in about


@pytest.mark.slow
def test_an_own_mechanism_comes_nearer_to_softmax_order_by_order():
    out = shown("own_mechanism.py")
    errors = [error for _, error in numbers(r"taylor\(order=(\d)\): off by (\S+),", out)]
    assert len(errors) == 4
    assert all(after < before / 2 for before, after in pairwise(errors))
    assert errors[-1] < 5e-3


@pytest.mark.slow
def test_features_of_a_kernel_are_as_good_as_the_kernel():
    out = shown("kernel_ridge.py")
    errors = [error for _, error in numbers(r"m = (\d+): test error (\S+) ", out)]
    assert errors == sorted(errors, reverse=True)
    assert "m = 512 is within 10 % of it" in out


def test_the_runtime_does_without_the_rest(tmp_path):
    out = shown("runtime_only.py", str(make_bundle(tmp_path / "bundle")))
    assert "commands as recorded" in out
    assert "no JAX and no engine was imported" in out
    assert "command: float32[2] in m" in out


@pytest.mark.slow
def test_an_own_environment_is_learnt():
    ((before, after),) = numbers(r"held-out reward: (\S+) before, (\S+) after", shown("own_environment.py"))
    assert before == 0.0
    assert after > 0.8


@pytest.mark.slow
def test_a_cluster_plays_what_one_machine_plays():
    assert "2 Ray workers played 16 episodes" in shown("es_on_a_cluster.py")
