"""What a robot installs: one line of pip, and nothing but the runtime."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "runtime"))

from toy_bundle import make_bundle  # noqa: E402 (of another folder of tests)

OURS = {"robopolicy", "numpy", "onnxruntime"}
WHAT_ONNXRUNTIME_WANTS = {
    "flatbuffers",
    "protobuf",
    "packaging",
    "coloredlogs",
    "humanfriendly",
    "sympy",
    "mpmath",
}
PIP = {"pip", "setuptools", "wheel"}


def done(*words, **more):
    run = subprocess.run(words, capture_output=True, text=True, timeout=600, **more)
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


@pytest.fixture(scope="module")
def empty(once):
    """The programs of an environment that holds what `pip install robopolicy` brings."""

    def install(folder):
        done(sys.executable, "-m", "venv", str(folder / "venv"))
        constraints = ("--constraint", str(ROOT / "constraints.txt"))
        done(str(folder / "venv" / "bin" / "pip"), "install", "--quiet", *constraints, str(ROOT), cwd=folder)

    return once("empty", install) / "venv" / "bin"


@pytest.mark.slow
def test_it_brings_numpy_and_onnxruntime_and_nothing_else(empty):
    listed = json.loads(done(str(empty / "pip"), "list", "--format", "json"))
    names = {package["name"].lower() for package in listed}
    assert names >= OURS
    assert names <= OURS | WHAT_ONNXRUNTIME_WANTS | PIP


@pytest.mark.slow
def test_it_verifies_a_bundle(empty, tmp_path):
    bundle = make_bundle(tmp_path / "bundle")
    words = [str(empty / "robopolicy"), "verify", str(bundle), "--calls", "50", "--json"]
    run = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    verdict = json.loads(run.stdout)
    assert verdict["same"] is True
    assert verdict["memory"] < 100e6
    (bundle / "README.md").write_text("changed")
    run = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].endswith("it was changed or damaged")


@pytest.mark.slow
def test_other_commands_name_the_missing_extra(empty, tmp_path):
    words = [str(empty / "robopolicy"), "train", "es", "--out", "run"]
    run = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "robopolicy[all]" in run.stderr


@pytest.mark.slow
def test_the_runtime_imports_nothing_heavy_there(empty, tmp_path):
    code = "import sys, robopolicy.runtime; print(*sys.modules)"
    loaded = {name.split(".")[0] for name in done(str(empty / "python"), "-c", code, cwd=tmp_path).split()}
    assert not loaded & {"jax", "flax", "gymnasium", "mujoco", "pybullet", "tyro", "onnx"}


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.14"])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_there_are_wheels_for_the_processors_of_robots(empty, tmp_path, machine, python):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["robot"]]
    platforms = [f"--platform=manylinux_{version}_{machine}" for version in ("2_27", "2_28", "2_17")]
    words = [
        "install",
        "--dry-run",
        "--quiet",
        "--report",
        "-",
        "--target",
        str(tmp_path / "target"),
        *platforms,
    ]
    words += [f"--python-version={python}", "--only-binary=:all:"]
    words += ["--constraint", str(ROOT / "constraints.txt")]
    found = json.loads(done(str(empty / "pip"), *words, *wanted, cwd=tmp_path))["install"]
    files = [package["download_info"]["url"].rpartition("/")[2] for package in found]
    assert any(file.startswith("onnxruntime-") and machine in file for file in files)
    assert any(file.startswith("numpy-") and machine in file for file in files)
    assert not any(file.startswith("jax") for file in files)
