"""What commands say of themselves."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version

import pytest

from robopolicy.cli import main
from robopolicy.envs.physics import ENGINES
from robopolicy.runtime.__main__ import main as runtime

COMMANDS = (
    ("train", "es"),
    ("train", "bc"),
    ("grid",),
    ("demos",),
    ("evaluate",),
    ("rollout",),
    ("flops",),
    ("runs",),
    ("inspect",),
    ("plan",),
    ("compare",),
    ("plot",),
    ("report",),
    ("export",),
    ("verify",),
    ("deploy",),
    ("doctor",),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_an_example(capsys, command):
    assert main([*command, "--help"]) == 0
    _, shown = " ".join(capsys.readouterr().out.split()).split("For example:")
    assert f" robopolicy {' '.join(command)}" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_the_defaults_of_flags(capsys, command):
    assert main([*command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    defaults = dict(re.findall(r"(--[a-z-]+) (?:(?! --).)*?\(default: (True|False)\)", shown))
    assert defaults["--json"] == "False"
    assert set(defaults.values()) == {"False"}


def test_help_names_every_engine_that_a_plan_takes(capsys):
    assert main(["plan", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "engine: bullet, mujoco or jax (stepping stones alone)" in shown
    assert set(ENGINES) == {"bullet", "mujoco", "jax"}


@pytest.mark.parametrize("run", [main, runtime])
def test_version_prints_the_version(capsys, run):
    with suppress(SystemExit):
        assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"robopolicy {version('robopolicy')}\n"


def test_help_lists_the_commands_with_a_line_or_two_each(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for command in COMMANDS:
        assert any(line.startswith(f"  {' '.join(command)} ") for line in lines)
    assert len(lines) < 2 * len(COMMANDS)


@pytest.mark.parametrize("words", ["--help", pytest.param("flops --json", marks=pytest.mark.slow)])
def test_a_reader_that_leaves_early_is_no_error(words):
    command = f"{sys.executable} -m robopolicy {words} | true"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True)
    assert done.stderr == ""


def test_with_a_closed_standard_error_nothing_else_is_on_standard_output():
    done = subprocess.run(f"{sys.executable} -m robopolicy nothing 2>&-", shell=True, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout) == (2, b"")


def test_an_ascii_terminal_is_no_error():
    command = [sys.executable, "-m", "robopolicy", "--help"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "train es" in done.stdout


def test_a_current_folder_that_was_deleted_is_named(refused, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the current folder was deleted" in refused("flops")


def test_a_closed_standard_output_is_named(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["flops"]) == 1
    assert (
        capsys.readouterr().err == "robopolicy: standard output is closed: give it a place, such as a file\n"
    )
