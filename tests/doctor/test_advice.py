"""One battery over everything that doctor can advise: it works on this Python and this machine."""

import re
import shlex
import subprocess
import sys
from dataclasses import fields, is_dataclass
from importlib.metadata import requires
from itertools import product
from pathlib import Path
from typing import get_type_hints

import pytest
from packaging.requirements import Requirement

import robopolicy
from robopolicy.cli import COMMANDS, command
from robopolicy.doctor import advice
from robopolicy.doctor import findings as doctor_findings
from robopolicy.doctor.checkups import ENGINES, MODULE_NAMES, PACKAGES, series
from robopolicy.doctor.findings import ABSENT, WRONG, machine, packages_of
from robopolicy.envs import physics

REQUIRED = requires("robopolicy")
EXTRAS = ("", *sorted(set(re.findall(r"extra == ['\"]([\w-]+)['\"]", " ".join(REQUIRED)))))
APPLYING = [
    one
    for one in map(Requirement, REQUIRED)
    if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in EXTRAS)
]
NAMES = {one.name.lower() for one in APPLYING} | {"packaging", "jaxlib"}
CHECKS = [(area, check) for area in (*ENGINES, "jax", "ffmpeg") for check in series(area)]
INSTALLERS = {  # whether this Python has pip and ensurepip, and whether uv is on PATH
    "pip": (True, True, False),
    "uv": (False, True, True),
    "ensurepip": (False, True, False),
    "none": (False, False, False),
}


@pytest.fixture(params=INSTALLERS)
def installer(request, monkeypatch):
    pip, ensurepip, uv = INSTALLERS[request.param]
    has = {"pip": pip, "ensurepip": ensurepip}
    monkeypatch.setattr(advice, "find_spec", has.__getitem__)
    monkeypatch.setattr(advice.shutil, "which", lambda name: f"/bin/{name}" if uv or name != "uv" else None)
    return request.param


def pieces(monkeypatch, tmp_path):
    """All findings that have advice, and the advice of every check that fails."""
    said = [advice.for_check(*check, others) for check in CHECKS for others in ((), ("mujoco",))]
    errors = [
        f"ModuleNotFoundError: No module named '{name}'" for name in ("yaml", *PACKAGES.values(), "cv2")
    ]
    said += [doctor_findings._fix_for(error, advice.install("jax", again=True)) for error in errors]
    for installed in ({"robopolicy": "1"}.get, lambda name: "0.0.1"):
        found = list(packages_of(REQUIRED, installed))
        assert {one.state for one in found} & {WRONG, ABSENT}
        said += [one.fix for one in found]
    said += [one.fix for one in packages_of([], lambda name: None)]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "packaging.requirements", None)
        said += [one.fix for one in packages_of(REQUIRED, lambda name: "9")]
    monkeypatch.setattr(doctor_findings, "LEAST_DISK", 1e30)
    monkeypatch.setattr(doctor_findings, "LEAST_MEMORY", 1e30)
    said += [one.fix for one in machine(tmp_path)]
    return {clause for one in said if one for clause in one.split(advice.OR)}


def commands(clauses):
    """The words of every command among the clauses."""
    lines = [line for clause in clauses for line in clause.split(" && ")]
    split = [shlex.split(line) for line in lines]
    return [words for words in split if words[0] in (sys.executable, "uv", "apt-get")]


def requirements(words):
    """What a command installs, without its options."""
    options = {"--force-reinstall": 1, "--python": 2, "--editable": 2}
    rest = words[words.index("install") + 1 :]
    while rest and rest[0].startswith("-"):
        rest = rest[options[rest[0]] :]
    return rest


def test_commands_install_what_exists_for_this_python(installer, monkeypatch, tmp_path):
    found = [words for words in commands(pieces(monkeypatch, tmp_path)) if words[0] != "apt-get"]
    assert len(found) > 20
    for words in found:
        if words[1:] == ["-m", "ensurepip"]:
            assert installer == "ensurepip"
            continue
        by_uv = ["uv", "pip", "install", "--python", sys.executable]
        start = [sys.executable, "-m", "pip", "install"] if installer in ("pip", "ensurepip") else by_uv
        assert words[: len(start)] == start
        for one in requirements(words):
            requirement = Requirement(one)
            assert requirement.name.lower() in NAMES, words
            ours = [own for own in APPLYING if own.name == requirement.name]
            assert not requirement.specifier or requirement.specifier == ours[0].specifier


def test_sentences_name_options_and_values_that_exist(monkeypatch, tmp_path):
    clauses = pieces(monkeypatch, tmp_path)
    sentences = [clause for clause in clauses if not commands([clause])]
    values = {"engine": physics.ENGINES, "renderer": physics.RENDERERS}
    options = set()
    for name in COMMANDS:
        nested = [command(name), *(t for t in get_type_hints(command(name)).values() if is_dataclass(t))]
        options |= {field.name for one in nested for field in fields(one)}
    named = [match for one in sentences for match in re.findall(r"--([a-z-]+)(?: (\w+))?", one)]
    assert {"workers", "engine", "renderer"} <= {option for option, _ in named}
    for option, value in named:
        assert option.replace("-", "_") in options
        assert value in values.get(option, (value,))
    assert any(str(tmp_path) in one for one in sentences)


def test_a_checkout_is_installed_from_where_it_is():
    *_, option, place = shlex.split(advice.install_checkout())
    folder = Path(robopolicy.__file__).parents[1]
    assert (option, place) == ("--editable", f"{folder}[all]")
    assert any("all" in str(one.marker) for one in map(Requirement, REQUIRED))


def test_bullet_is_advised_only_where_it_has_a_wheel(monkeypatch):
    assert advice.has_bullet_wheel() == ("pybullet" in NAMES)
    for has in (True, False):
        monkeypatch.setattr(advice, "has_bullet_wheel", lambda has=has: has)
        said = advice.for_check("bullet", "stepping stones", ["mujoco"])
        assert ("pybullet" in said) is has
        assert said.endswith("give --engine mujoco")


@pytest.mark.parametrize("others", [(), ("bullet",)])
def test_another_engine_is_advised_only_where_it_is_installed(others):
    assert ("--engine bullet" in advice.for_check("mujoco", "bimanual sweep", others)) == bool(others)


@pytest.mark.parametrize(
    ("program", "error", "said"),
    [
        ("apt-get", "libgomp.so.1: cannot open shared object file: No such file", "apt-get install libgomp1"),
        ("dnf", "libgomp.so.1: cannot open shared object file: No such file", "install libgomp"),
        ("apt-get", "libodd.so: cannot open shared object file: No such file", "install libodd"),
        ("apt-get", "No module named 'libgomp'", ""),
        (
            "dnf",
            "cannot cache function 'draw': no locator available for file 'x'",
            "set NUMBA_CACHE_DIR to a folder that can be written to",
        ),
    ],
)
def test_what_an_error_names_as_missing_is_advised(monkeypatch, program, error, said):
    monkeypatch.setattr(advice.shutil, "which", lambda name: "/bin/x" if name == program else None)
    assert advice.for_error(error) == said


def test_opengl_is_needed_for_its_own_renderer_alone():
    for area, check in product(ENGINES, ("stepping stones", "pictures")):
        assert "OpenGL" not in advice.for_check(area, check, ()) + advice.for_check(area, check, ("mujoco",))
    assert advice.for_check("mujoco", "opengl", ()).endswith("give --renderer software")


@pytest.mark.slow
def test_pip_finds_a_wheel_of_everything_advised(monkeypatch, tmp_path):
    found = [words for words in commands(pieces(monkeypatch, tmp_path)) if words[0] != "apt-get"]
    wanted = sorted({one for words in found for one in requirements(words)})
    assert {"jax", *MODULE_NAMES} <= {re.split("[<>=]", one)[0].lower() for one in wanted}
    words = ["install", "--dry-run", "--quiet", "--ignore-installed", "--only-binary=:all:", *wanted]
    run = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-2000:]
