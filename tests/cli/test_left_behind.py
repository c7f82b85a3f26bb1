"""Commands that are ended before their end leave nothing behind, or nothing for long."""

import os
import signal
import subprocess
import sys
import time

import pytest
from made_datasets import black_frames

from robopolicy.cli import main

FILM = "rollout oracle --size 320 240 --slow 20 --video"
EXPORT = "export stepping-stones-softmax --observations 1000 --out"
DROPPED = """
import gc, runpy, signal, time
import robopolicy.cli

def interrupt(phase, info):
    gc.callbacks.remove(interrupt)
    signal.raise_signal(signal.{signal})

def in_a_callback():
    gc.callbacks.append(interrupt)
    gc.collect()

def in_a_string():  # not dropped, but Python would end itself by SIGINT
    exec("signal.raise_signal(signal.{signal})")

def in_a_library():
    try:
        signal.raise_signal(signal.{signal})
    except:
        pass

def in_a_stop():
    try:
        signal.raise_signal(signal.{signal})
    finally:
        signal.raise_signal(signal.{signal})
        print("stopped")

def with_another_error():
    in_a_library()
    try:
        raise RuntimeError
    finally:
        time.sleep(0.5)
        print("cleaned up")

def run():
    {place}()
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
robopolicy.cli.main = run
runpy.run_module("robopolicy", run_name="__main__")
"""

IMPORTED = """
import runpy, signal, sys

class Finder:
    def find_spec(self, name, *rest):
        if name == "robopolicy.cli":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
runpy.run_module("robopolicy", run_name="__main__")
"""


def ended(words, out, temporary, how):
    """Start a command, end it as soon as it has begun to write; its exit code."""
    command = [sys.executable, "-m", "robopolicy", *words.split(), str(out)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        while not list(out.parent.iterdir()) and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(how)
        return process.wait()


@pytest.fixture
def temporary(tmp_path_factory):
    """A folder for temporary files of its own."""
    return tmp_path_factory.mktemp("temporary")


def left(folder):
    """What lies in a folder, but for the mark that ONNX Runtime keeps for itself."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".ses")


def dropped(folder, place, name):
    """A `python -m` whose command is interrupted in `place` by the signal of this name; its output."""
    (folder / "dropped.py").write_text(DROPPED.replace("{place}", place).replace("{signal}", name))
    return subprocess.run([sys.executable, "-m", "dropped"], cwd=folder, capture_output=True, timeout=30)


@pytest.mark.parametrize("place", ["in_a_callback", "in_a_library", "in_a_string"])
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_an_interrupt_that_is_dropped_is_not_lost(tmp_path, name, place):
    done = dropped(tmp_path, place, name)
    assert (done.returncode, done.stderr) == (130, b"robopolicy: interrupted\n")


def test_a_second_hangup_does_not_cut_a_stop_short(tmp_path):
    done = dropped(tmp_path, "in_a_stop", "SIGHUP")
    assert (done.returncode, done.stdout, done.stderr) == (130, b"stopped\n", b"robopolicy: interrupted\n")


def test_an_interrupt_while_commands_are_imported_prints_one_line():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (130, b"robopolicy: interrupted\n")


def test_an_interrupt_is_not_repeated_while_another_error_cleans_up(tmp_path):
    done = dropped(tmp_path, "with_another_error", "SIGTERM")
    assert (done.returncode, done.stdout) == (1, b"cleaned up\n")
    assert done.stderr.endswith(b"RuntimeError\n")


@pytest.mark.slow
@pytest.mark.parametrize(("words", "name"), [(FILM, "walk.mp4"), (EXPORT, "bundle")])
def test_sigterm_leaves_nothing(tmp_path, temporary, words, name):
    assert ended(words, tmp_path / name, temporary, signal.SIGTERM) == 130
    assert left(tmp_path) == left(temporary) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "name", "short"),
    [(FILM, "walk.mp4", "--episode-seconds 0.2"), (EXPORT, "bundle", "--observations 1")],
)
def test_the_next_command_removes_the_leftovers_of_a_killed_one(
    tmp_path, temporary, monkeypatch, words, name, short
):
    out = tmp_path / name
    assert ended(words, out, temporary, signal.SIGKILL) == -signal.SIGKILL
    assert len(left(tmp_path)) == 1
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert main([*words.split(), str(out), *short.split()]) == 0
    assert left(tmp_path) == [name]
    assert left(temporary) == []


@pytest.mark.parametrize(
    "command",
    [
        "train es --engine mujoco --attention all --out run",
        "train bc --data data-v0 --attention all --patch 16 --rollouts 0 --out run",
        "grid run --engine mujoco --attention all --seeds 0",
    ],
)
def test_a_name_of_graphs_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("robopolicy.naming.GRAPH_NAMES", ("front_depth", "poses"))
    black_frames(tmp_path / "data-v0")
    assert main(command.split()) == 2
    assert "graphs have front_depth, poses, so give it another name" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["data-v0"]
