"""A bundle's C files in programs of C: the same bits at every level of the compiler, and drives."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from installed_compilers import needs_gcc
from test_driving import SOON, next_message
from test_remembering import Walker
from toy_bundle import ROWS, ToyRobot, observations, played, seal, stepping, write_c

from robopolicy.runtime import BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.compiled import outputs_digest
from robopolicy.runtime.link import LOOPBACK
from robopolicy.runtime.process import remote_policy
from robopolicy.runtime.protocol import Kind, encode, pack, stop
from robopolicy.runtime.robot import Driver

CONTROLLER = Path(__file__).parents[2] / "examples" / "controller"


def program(folder, bundle, *flags):
    """examples/controller/check.c for a bundle."""
    sources = [CONTROLLER / "check.c", CONTROLLER / "sha256.c", bundle / "policy.c"]
    words = ["gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", *flags]
    made = folder / "check"
    subprocess.run([*words, f"-I{bundle}", f"-I{CONTROLLER}", *sources, "-o", made], check=True)
    return made


@pytest.fixture
def rows(with_c):
    path = with_c.parent / "rows.bin"
    subprocess.run([sys.executable, CONTROLLER / "write_rows.py", with_c, path], check=True)
    return path


@pytest.mark.rest_slow
@needs_gcc
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_every_level_of_the_compiler_computes_the_same_bits(with_c, rows, tmp_path, level):
    policy, made = played(with_c, "c")
    run = subprocess.run([program(tmp_path, with_c, level), rows], capture_output=True, text=True)
    assert run.stdout == f"{ROWS} rows, outputs {outputs_digest(policy.manifest, made)}\n"


@needs_gcc
def test_sanitisers_find_nothing_also_in_spoilt_readings(with_c, rows, tmp_path):
    sanitise = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    run = subprocess.run(
        [program(tmp_path, with_c, *sanitise), rows, "spoil"], capture_output=True, text=True
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith(f"{ROWS} rows")


@needs_gcc
@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_it_keeps_nothing_and_calls_only_memory_functions(with_c, tmp_path):
    words = [
        "gcc",
        "-std=c99",
        "-O2",
        "-ffreestanding",
        "-c",
        with_c / "policy.c",
        "-o",
        tmp_path / "policy.o",
    ]
    subprocess.run(words, check=True)
    told = subprocess.run(["nm", tmp_path / "policy.o"], capture_output=True, text=True, check=True).stdout
    kinds = [line.split()[-2:] for line in told.splitlines()]
    assert {name for kind, name in kinds if kind == "T"} == {"policy_reset", "policy_check", "policy_run"}
    assert {name for kind, name in kinds if kind == "U"} <= {
        "memcpy",
        "memset",
        "memmove",
        "_GLOBAL_OFFSET_TABLE_",
    }
    assert not [name for kind, name in kinds if kind in "bBdDC"]


def starting_drive(folder, bundle, started):
    """Compile examples/controller/drive.c for a bundle. Returns what starts it, and adds it to `started`."""
    words = ["gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", f"-I{bundle}"]
    made = folder / "drive"
    subprocess.run([*words, CONTROLLER / "drive.c", bundle / "policy.c", "-o", made], check=True)

    def start(port):
        started.append(subprocess.Popen([made, LOOPBACK, str(port)], stdout=subprocess.PIPE))

    return start


@needs_gcc
def test_a_program_of_c_begins_an_episode_with_each_drive(bundle, tmp_path):
    seal(bundle, stepping())
    write_c(bundle, stepping())
    opened, started = open_bundle(bundle), []
    start = starting_drive(tmp_path, bundle, started)
    with remote_policy(LOOPBACK, 0, opened.manifest, SOON, start) as link:
        driver = Driver(link, opened.manifest, misses=1000)
        for _ in range(2):  # the second begins 2 rad from where the first ends
            assert driver.run(Walker([(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]), 5.0) is None
    assert started[0].communicate(timeout=SOON)[0].endswith(b" observations answered\n")


@needs_gcc
def test_a_program_of_c_drives_a_robot(with_c, tmp_path):
    opened, started, robot = open_bundle(with_c), [], ToyRobot()
    start = starting_drive(tmp_path, with_c, started)
    with remote_policy(LOOPBACK, 0, opened.manifest, SOON, start) as link:
        assert Driver(link, opened.manifest, misses=1000).run(robot, 20.0) is None
    told, _ = started[0].communicate(timeout=SOON)
    given = [command for command in robot.commands if command is not None]
    answered = int(told.removesuffix(b" observations answered\n"))
    assert len(given) <= answered <= len(robot.commands)  # a busy machine answers some too late
    wanted = BundlePolicy.load(with_c, "c").act(robot.readings)
    assert given
    for command in given:
        np.testing.assert_array_equal(command, wanted)


@needs_gcc
@pytest.mark.parametrize("last", [b"", b"RPOL"], ids=["", "half a message"])
def test_a_program_of_c_answers_the_newest_of_several_observations(with_c, tmp_path, last):
    described, seen, started = open_bundle(with_c).manifest, observations(), []
    rows = [{name: array[row % ROWS] for name, array in seen.items()} for row in range(11)]
    sent = [encode(Kind.OBSERVATION, row, 0, pack(described.inputs, rows[row % 11])) for row in range(1, 12)]
    with socket.create_server((LOOPBACK, 0)) as server:
        starting_drive(tmp_path, with_c, started)(server.getsockname()[1])
        server.settimeout(SOON)
        robot, _ = server.accept()
        with robot:
            robot.settimeout(SOON)
            next_message(robot, Kind.HELLO)
            robot.sendall(b"".join([encode(Kind.HELLO, payload=described.digest), *sent[:-1], last]))
            command = next_message(robot, Kind.COMMAND)
            assert command.sequence == 10
            wanted = BundlePolicy.load(with_c, "c").act(rows[10])
            np.testing.assert_array_equal(np.frombuffer(command.payload, "<f4"), wanted)
            robot.sendall((sent[-1] + stop("done")).removeprefix(last))
            assert started[0].communicate(timeout=SOON)[0] == b"1 observations answered\n"
