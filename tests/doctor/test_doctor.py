"""`robopolicy doctor`: what is missing or broken is told, and never breaks it."""

import json
import os
import subprocess
import sys

import pytest

from robopolicy.doctor.findings import MENDS, Finding, machine, packages_of, run_series, told, words

# Makes modules that are installed look as if they were not, or end the process that imports them.
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
    'pybullet; python_version < "3" and extra == "sim"',
    'ray>=2.50; extra == "ray"',
    'wandb>=0.20; extra == "wandb"',
]


@pytest.fixture
def spoilt(tmp_path):
    """An environment in which modules are spoilt."""
    (tmp_path / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    return lambda **kinds: {**os.environ, "PYTHONPATH": path, **kinds}


def doctor(environment, *words):
    command = [sys.executable, "-m", "robopolicy", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def test_packages_are_what_the_installation_says():
    there = {"robopolicy": "0.1.0", "numpy": "1.26", "jax": "0.8", "ray": "2.60"}
    found = {(one.area, one.name): one for one in packages_of(REQUIRED, there.get)}
    assert found["packages", "numpy"].state == "wrong"
    assert found["packages", "numpy"].told == "1.26, and >=2 is needed"
    assert found["packages", "numpy"].fix == "pip install --upgrade 'robopolicy'"
    assert found["packages", "jax"].state == "ok"
    assert found["packages", "flax"].state == "wrong"
    assert found["packages", "flax"].fix == "pip install 'robopolicy[train]'"
    # Nobody has asked for what nothing is there of.
    assert found["extras", "sim"].state == "absent"
    assert found["extras", "sim"].told == "lacks mujoco"
    assert found["extras", "wandb"].fix == "pip install 'robopolicy[wandb]'"
    assert found["extras", "ray"].told == "ray 2.60"
    assert not [name for name in found if "pybullet" in name or "all" in name]


def test_it_does_without_what_reads_requirements(monkeypatch):
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    _, one = packages_of(REQUIRED, lambda name: "9")
    assert (one.name, one.state, one.fix) == ("packaging", "wrong", "pip install packaging")


def test_a_checkout_that_was_not_installed_is_told():
    (_, one) = packages_of([], lambda name: None)
    assert (one.state, one.fix.split()[:2]) == ("wrong", ["pip", "install"])


def test_a_full_disk_is_wrong(tmp_path, monkeypatch):
    from robopolicy.doctor import findings

    monkeypatch.setattr(findings, "LEAST_DISK", 1e18)
    found = {one.name: one for one in machine(tmp_path)}
    assert found["cores"].state == "ok"
    assert found["disk"].state == "wrong"
    assert str(tmp_path) in found["disk"].fix


def test_no_place_for_temporary_files_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("tempfile._candidate_tempdir_list", lambda: [str(tmp_path / "nowhere")])
    found = {one.name: one for one in machine(tmp_path)}
    assert found["temporary"].state == "wrong"
    assert "TMPDIR" in found["temporary"].fix


def test_what_ends_the_process_is_what_its_check_found(spoilt, monkeypatch):
    for name, value in spoilt(DEADLY="imageio_ffmpeg").items():
        monkeypatch.setenv(name, value)
    (one,) = run_series("ffmpeg")
    assert (one.state, one.told, one.fix) == ("wrong", "it was ended by SIGABRT", MENDS["ffmpeg"])
    sound, deadly, after = run_series("imports=numpy,imageio-ffmpeg,onnxruntime")
    assert sound.state == "ok"
    assert deadly.told == after.told == "it was ended by SIGABRT"


def test_what_hangs_is_ended(monkeypatch):
    from robopolicy.doctor import findings

    monkeypatch.setattr(findings, "PATIENCE", 0.01)
    (one,) = run_series("ffmpeg")
    assert one.told == "it took longer than 0.01 s"


def test_what_mends_several_is_told_once():
    missing = "ModuleNotFoundError: No module named 'jax'"
    found = [Finding("packages", name, "wrong", missing, "pip install jax") for name in ("jax", "flax")]
    said = words([*found, Finding("extras", "ray", "absent", "lacks ray", "pip install 'robopolicy[ray]'")])
    assert said.count("pip install jax") == 1
    assert "packages flax" in said
    assert "pip install 'robopolicy[ray]'" in said
    assert json.loads(told(found))["sound"] is False
    assert json.loads(told([]))["sound"] is True


@pytest.mark.slow
def test_this_machine_is_looked_at_as_a_whole(tmp_path):
    run = doctor(None, "doctor", "--json")
    report = json.loads(run.stdout)
    assert run.returncode == (0 if report["sound"] else 1)
    found = {(one["area"], one["name"]): one for one in report["findings"]}
    for engine in ("bullet", "mujoco"):
        for task in ("stepping stones", "bimanual sweep"):
            assert found[engine, task]["state"] == "ok"
    for what in (("jax", "devices"), ("jax", "policy"), ("ffmpeg", "video"), ("packages", "evojax")):
        assert found[what]["state"] == "ok", found[what]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "wrong"),
    [
        ("numpy", {("packages", "numpy"), ("jax", "devices"), ("bullet", "stepping stones")}),
        ("gymnasium,tyro", {("packages", "tyro"), ("mujoco", "bimanual sweep")}),
    ],
)
def test_nothing_that_is_missing_breaks_it(spoilt, hidden, wrong):
    run = doctor(spoilt(HIDDEN=hidden), "doctor", "--json")
    assert run.returncode == 1, run.stderr
    assert "Traceback" not in run.stderr
    report = json.loads(run.stdout)
    assert report["sound"] is False
    bad = {(one["area"], one["name"]): one for one in report["findings"] if one["state"] == "wrong"}
    assert wrong <= bad.keys()
    assert all(one["fix"] for one in bad.values())


def test_other_commands_send_for_it(spoilt):
    run = doctor(spoilt(HIDDEN="gymnasium"), "runs")
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].endswith("see what is missing with: robopolicy doctor")
    assert "Traceback" not in run.stderr


def test_a_command_that_lacks_something_sends_for_it(spoilt, tmp_path):
    out = str(tmp_path / "curves.png")
    run = doctor(spoilt(HIDDEN="matplotlib"), "plot", "stepping-stones-softmax", "--out", out)
    assert run.returncode == 2
    (line,) = run.stderr.splitlines()
    assert "'matplotlib'" in line
    assert line.endswith("robopolicy doctor")
