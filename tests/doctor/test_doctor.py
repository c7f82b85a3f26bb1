"""`robopolicy doctor` reports what is missing or broken, and works nevertheless."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from importlib.util import find_spec

import pytest
from installed_engines import INSTALLED

from robopolicy.doctor import advice
from robopolicy.doctor import findings as doctor_findings
from robopolicy.doctor.checkups import MODULE_NAMES
from robopolicy.doctor.findings import Finding, as_json, as_text, machine, packages_of, run_series

# Hides installed modules, or makes their import abort the process.
SITE = """
import importlib.machinery, os
spoilt = {kind: os.environ.get(kind, "").split(",") for kind in ("HIDDEN", "DEADLY")}
found = importlib.machinery.PathFinder.find_spec
def find(cls, name, path=None, target=None):
    first = name.partition(".")[0]
    if first in spoilt["DEADLY"]:
        os.abort()
    return None if first in spoilt["HIDDEN"] else found(name, path, target)
importlib.machinery.PathFinder.find_spec = classmethod(find)
"""
REQUIRED = [
    "numpy>=2",
    'jax>=0.7; extra == "train"',
    'flax>=0.12; extra == "train"',
    'jax>=0.7; extra == "all"',
    'mujoco>=3.3; extra == "sim"',
    'pybullet; python_version < "3" and extra == "bullet"',
    'ray>=2.50; extra == "ray"',
    'wandb>=0.20; extra == "wandb"',
]


@pytest.fixture
def spoilt(tmp_path):
    """Environment variables that hide modules or make their import abort."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return lambda **kinds: {**os.environ, "PYTHONPATH": path, **kinds}


def doctor(environment, *arguments):
    command = [sys.executable, "-m", "robopolicy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def test_packages_are_compared_with_the_requirements():
    installed = {"robopolicy": "0.1.0", "numpy": "1.26", "jax": "0.8", "ray": "2.60"}
    found = {(one.area, one.name): one for one in packages_of(REQUIRED, installed.get)}
    assert found["packages", "numpy"].state == "wrong"
    assert found["packages", "numpy"].detail == "1.26, and >=2 is needed"
    assert found["packages", "numpy"].fix == advice.install("numpy>=2")
    assert found["packages", "jax"].state == "ok"
    assert found["packages", "flax"].state == "wrong"
    assert found["packages", "flax"].fix == advice.install("flax>=0.12")
    # An extra of which no package is installed is optional.
    assert found["extras", "sim"].state == "absent"
    assert found["extras", "sim"].detail == "lacks mujoco"
    assert found["extras", "wandb"].fix == advice.install("wandb>=0.20")
    assert found["extras", "ray"].detail == "2.60"
    # The command names an extra without a package for this machine, but gives no advice.
    bullet = found["extras", "bullet"]
    assert bullet.detail.startswith(f"has no package for Python 3.{sys.version_info[1]} on ")
    assert (bullet.state, bullet.fix) == ("absent", "")
    assert not [name for name in found if "pybullet" in name or "all" in name]


@pytest.mark.parametrize(
    ("version", "detail"),
    [
        ("2.60", "2.60, and cannot be imported: ImportError: a library is missing"),
        ("2.40", "2.40, and >=2.50 is needed"),
    ],
)
def test_an_extra_that_is_outdated_or_broken_is_wrong(monkeypatch, version, detail):
    def checks(series):
        kind, _, packages = series.partition("=")
        missing = "ImportError: a library is missing"
        return [Finding(kind, one, "wrong", missing) for one in packages.split(",") if one == "ray"]

    monkeypatch.setattr(doctor_findings, "requires", lambda name: ['ray>=2.50; extra == "ray"'])
    monkeypatch.setattr(doctor_findings, "installed_version", lambda name: version)
    monkeypatch.setattr(doctor_findings, "run_series", checks)
    found = {(one.area, one.name): one for one in doctor_findings.examine()}
    assert (found["extras", "ray"].state, found["extras", "ray"].detail) == ("wrong", detail)
    assert found["extras", "ray"].fix


def test_the_modules_of_all_installed_packages_are_known():
    found = packages_of(requires("robopolicy") or [], doctor_findings.installed_version)
    names = [one.name for one in found if one.state == "ok"]
    assert [name for name in names if find_spec(MODULE_NAMES.get(name, name)) is None] == []


def test_it_works_without_packaging(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    _, one = packages_of(REQUIRED, lambda name: "9")
    assert (one.name, one.state, one.fix) == ("packaging", "wrong", advice.install("packaging"))


def test_a_checkout_that_is_not_installed_is_wrong():
    (_, one) = packages_of([], lambda name: None)
    assert (one.state, one.fix) == ("wrong", advice.install_checkout())


def test_a_full_disk_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor_findings, "LEAST_DISK", 1e18)
    found = {one.name: one for one in machine(tmp_path)}
    assert found["cores"].state == "ok"
    assert found["disk"].state == "wrong"
    assert str(tmp_path) in found["disk"].fix


def test_a_missing_folder_for_temporary_files_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    found = {one.name: one for one in machine(tmp_path)}
    assert found["temporary"].state == "wrong"
    assert "TMPDIR" in found["temporary"].fix


def test_a_crash_fails_its_check_and_the_remaining_ones(spoilt, monkeypatch):
    for name, value in spoilt(DEADLY="imageio_ffmpeg").items():
        monkeypatch.setenv(name, value)
    (one,) = run_series("ffmpeg")
    expected = advice.install("imageio-ffmpeg", again=True)
    assert (one.state, one.detail, one.fix) == ("wrong", "it was ended by SIGABRT", expected)
    before, crashed, after = run_series("imports=numpy,imageio-ffmpeg,onnxruntime")
    assert before.state == "ok"
    assert crashed.detail == after.detail == "it was ended by SIGABRT"


def test_a_check_that_hangs_times_out(monkeypatch):
    monkeypatch.setattr(doctor_findings, "TIMEOUT", 0.01)
    (one,) = run_series("ffmpeg")
    assert one.detail == "it took longer than 0.01 s"


def test_a_fix_for_several_findings_is_printed_once():
    missing = "ModuleNotFoundError: No module named 'jax'"
    found = [Finding("packages", name, "wrong", missing, "pip install jax") for name in ("jax", "flax")]
    text = as_text([*found, Finding("extras", "ray", "absent", "lacks ray", "pip install 'ray>=2.50'")])
    assert text.count("pip install jax") == 1
    assert "packages flax" in text
    assert "pip install 'ray>=2.50'" in text
    assert "fix:" not in as_text([Finding("bullet", "pictures", "wrong", "it was ended by SIGABRT")])
    report = json.loads(as_json(found))
    assert report["sound"] is False
    assert report["findings"][0]["detail"] == missing
    assert json.loads(as_json([]))["sound"] is True


@pytest.mark.slow
def test_the_whole_report_on_this_machine(tmp_path):
    run = doctor(None, "doctor", "--json")
    report = json.loads(run.stdout)
    assert run.returncode == (0 if report["sound"] else 1)
    found = {(one["area"], one["name"]): one for one in report["findings"]}
    for engine in INSTALLED:
        for check in ("stepping stones", "bimanual sweep", "pictures"):
            assert found[engine, check]["state"] == "ok"
    for what in (
        ("jax", "devices"),
        ("jax", "policy"),
        ("jax", "stepping stones"),
        ("ffmpeg", "video"),
        ("packages", "evojax"),
    ):
        assert found[what]["state"] == "ok", found[what]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "wrong"),
    [
        ("numpy", {("packages", "numpy"), ("jax", "devices"), ("mujoco", "stepping stones")}),
        ("gymnasium,tyro", {("packages", "tyro"), ("mujoco", "bimanual sweep")}),
    ],
)
def test_it_works_without_any_other_package(spoilt, hidden, wrong):
    run = doctor(spoilt(HIDDEN=hidden), "doctor", "--json")
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    report = json.loads(run.stdout)
    assert report["sound"] is False
    bad = {(one["area"], one["name"]): one for one in report["findings"] if one["state"] == "wrong"}
    assert wrong <= bad.keys()
    assert all(one["fix"] for one in bad.values())


def test_commands_refer_to_doctor_when_the_cli_cannot_start(spoilt):
    run = doctor(spoilt(HIDDEN="docstring_parser"), "runs")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith("see what is missing with: robopolicy doctor")
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_a_command_refers_to_doctor_when_it_lacks_a_package(spoilt, tmp_path):
    out = str(tmp_path / "curves.png")
    run = doctor(spoilt(HIDDEN="matplotlib"), "plot", "stepping-stones-softmax", "--out", out)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert "'matplotlib'" in line
    assert line.endswith("robopolicy doctor")
