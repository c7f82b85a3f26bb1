"""A robot and a policy at two ends of a socket: a failure of one end stops the other safely.

Times are generous deadlines, not measurements.
"""

import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import numpy as np
import pytest
from toy_bundle import ToyRobot, make_bundle, observations

from robopolicy.runtime import BundlePolicy
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.link import Link, accept, connect, listen
from robopolicy.runtime.manifest import parse
from robopolicy.runtime.process import policy_process, remote_policy
from robopolicy.runtime.protocol import HEADER, Decoder, Kind, ProtocolError, encode, pack, stop
from robopolicy.runtime.robot import Driver, wait_until
from robopolicy.runtime.serve import serve

SOON = 10.0  # s; a test that takes longer hangs


def drive(bundle, peer, robot=None, misses=3, wait=wait_until):
    """Drive a robot with `peer`, a function of a connected socket. Returns robot, record and stop reason."""
    manifest = open_bundle(bundle).manifest
    robot = robot or ToyRobot()

    def run_peer():
        with socket.create_connection(address, timeout=SOON) as mine:
            mine.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            mine.sendall(encode(Kind.HELLO, payload=manifest.digest))
            with suppress(OSError):  # the robot may close the connection first
                next_message(mine, Kind.OBSERVATION)
                peer(mine)

    with listen() as server:
        address = server.getsockname()
        thread = threading.Thread(target=run_peer, daemon=True)
        thread.start()
        with accept(server, manifest, SOON) as link:
            driver = Driver(link, manifest, misses, wait)
            reason = driver.run(robot, seconds=5.0)
    thread.join(SOON)
    assert not thread.is_alive()
    assert len(robot.stops) == 1, "every drive ends with exactly one stop"
    assert reason is None or len(reason.splitlines()) == 1
    return robot, driver.record, reason


def answers(sock, count=10**9, command=(0.1, -0.2), sequence=lambda n: n, also=lambda sock, n: None, first=1):
    """Answer observation `first`, if it has been received already, and the following: `count` in all."""
    lengths = {Kind.HELLO: (32, 32), Kind.OBSERVATION: (88, 88), Kind.STOP: (0, 500)}
    decoder, waiting, answered = Decoder(lengths), [first] if first else [], 0
    while True:
        for number in waiting:
            payload = np.array(command, "<f4").tobytes()
            sock.sendall(encode(Kind.COMMAND, sequence(number), 5, payload))
            also(sock, number)
            answered += 1
        if answered >= count or not (data := sock.recv(4096)):
            return
        messages = decoder.feed(data)
        if any(message.kind is Kind.STOP for message in messages):
            return
        waiting = [message.sequence for message in messages]


def test_a_round_trip_begins_before_its_observation_is_sent(bundle, monkeypatch):
    send = Link.send

    def slow(link, content, *patience):  # as when the policy gets the processor before the call returns
        send(link, content, *patience)
        time.sleep(0.003)

    monkeypatch.setattr(Link, "send", slow)
    _, record, _ = drive(bundle, answers, misses=1000)
    assert min(record.round_trips) >= 0.003


def test_a_policy_drives_a_robot_to_its_end(bundle):
    robot, record, reason = drive(bundle, answers)
    assert reason is None
    assert record.steps == 20
    assert len(robot.commands) == 20
    np.testing.assert_allclose(robot.commands[0], [0.1, -0.2], rtol=1e-6)
    summary = record.summary()
    assert summary["share_missed"] == record.missed / 20
    assert summary["thinking"]["max"] == pytest.approx(5e-9)


def test_a_robot_with_a_clock_begins_the_steps(bundle):
    steps = iter(range(5))

    def wait(due):
        if next(steps, None) is None:
            raise ConnectionError("the robot is gone")
        return time.monotonic() - 1.0

    robot, record, reason = drive(bundle, answers, wait=wait)
    assert reason == "the robot is gone"
    assert robot.stops == [reason]
    assert record.steps == 5
    assert min(record.jitter) >= 1.0


def silent(sock):
    answers(sock, count=3)
    time.sleep(0.5)


def half(sock):
    answers(sock, count=3)
    sock.sendall(encode(Kind.COMMAND, 4, 0, b"12345678")[:20])
    time.sleep(0.5)


def repeated(sock, sequence):
    sock.sendall(encode(Kind.COMMAND, sequence, 0, np.zeros(2, "<f4").tobytes()))


def flood(sock, sequence):
    sock.sendall(encode(Kind.COMMAND, sequence, 0, np.zeros(2, "<f4").tobytes()) * 500)


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    ("peer", "message"),
    [
        (silent, "no command came in time, 3 times in a row"),
        (half, "no command came in time, 3 times in a row"),
        (lambda s: answers(s, count=3), "the peer has closed the connection"),
        (lambda s: s.sendall(b"\x17\x03 garbage, longer than a header"), "does not use this protocol"),
        (lambda s: answers(s, command=(0.1, np.nan)), "the command 'right' is nan m"),
        (
            lambda s: answers(s, command=(9.0, 0.0)),
            "the command 'left' is 9 m: it must be a number from -0.3 to 0.3",
        ),
        (lambda s: answers(s, command=(0.0, 0.0, 0.0)), "a COMMAND has 12 bytes: it must have 8"),
        (lambda s: answers(s, sequence=lambda n: n + 1), "a command for observation 2 came"),
        (lambda s: answers(s, sequence=lambda n: 0), "a command for observation 0 came"),
        (lambda s: answers(s, also=repeated), "a command for observation 1 came"),
        (lambda s: answers(s, also=flood), ""),
        (lambda s: s.sendall(stop("sensor\nfailed")), "the policy stops: sensor failed"),
        (lambda s: s.sendall(encode(Kind.HELLO, payload=b"x" * 32)), "a HELLO came in place of a COMMAND"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_policy_makes_the_robot_stop_safely(bundle, peer, message):
    began = time.monotonic()
    robot, _, reason = drive(bundle, peer, ToyRobot(100))
    assert reason is not None
    assert message in reason
    assert robot.stops == [reason]
    assert time.monotonic() - began < SOON


def test_the_robot_holds_while_a_command_is_late(bundle):
    def late_once(sock):
        answers(sock, count=5)
        time.sleep(0.2)  # ten periods
        answers(sock, first=None)

    robot, record, reason = drive(bundle, late_once, ToyRobot(30), misses=20)
    assert reason is None
    assert record.missed >= 1
    assert [command is None for command in robot.commands].count(True) == record.missed


def test_an_exception_of_the_robot_stops_it(bundle):
    class Broken(ToyRobot):
        def act(self, command):
            raise RuntimeError("the motors are gone")

    robot = Broken()
    with pytest.raises(RuntimeError, match="motors"):
        drive(bundle, answers, robot)
    assert robot.stops == ["the robot's side failed: RuntimeError"]


def test_ctrl_c_stops_the_robot(bundle):
    class Interrupted(ToyRobot):
        def act(self, command):
            raise KeyboardInterrupt

    robot = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        drive(bundle, answers, robot)
    assert robot.stops == ["interrupted"]


def test_other_peers_are_refused_until_the_policy_connects(bundle):
    manifest = open_bundle(bundle).manifest
    refused = []
    with listen() as server:
        address = server.getsockname()
        assert address[0] == "127.0.0.1"
        greetings = [
            b"GET / HTTP/1.1\r\n\r\n",
            encode(Kind.HELLO, payload=b"x" * 32),
            encode(Kind.COMMAND, 1, 0, b"12345678"),
            b"",
        ]
        strangers = [socket.create_connection(address) for _ in greetings]
        for stranger, greeting in zip(strangers, greetings, strict=True):
            stranger.sendall(greeting)
            stranger.shutdown(socket.SHUT_WR)
        mine = threading.Thread(target=lambda: connect(manifest, *address).close(), daemon=True)
        mine.start()
        accept(server, manifest, SOON, refused.append).close()
        mine.join(SOON)
        for stranger in strangers:
            stranger.close()
    assert len(refused) == len(greetings)
    assert "different bundles" in refused[1]
    with listen() as server, pytest.raises(ConnectionError, match="no policy has connected"):
        accept(server, manifest, 0.2)


def test_both_ends_must_have_the_same_bundle(bundle, tmp_path):
    other = open_bundle(make_bundle(tmp_path / "other", control_period=0.03)).manifest
    mine = open_bundle(bundle).manifest
    assert mine.digest != other.digest
    assert parse((bundle / "manifest.json").read_bytes()).digest == mine.digest
    refused = []

    def refuse(server):
        with suppress(ConnectionError):
            accept(server, mine, 1.0, refused.append, lambda: not refused)

    with listen() as server:
        thread = threading.Thread(target=refuse, args=(server,), daemon=True)
        thread.start()
        with pytest.raises((ProtocolError, ConnectionError)):
            connect(other, *server.getsockname())
        thread.join(SOON)
    assert len(refused) == 1
    assert "different bundles" in refused[0]


def serving(bundle, robot, silence=1.0):
    """Serve the bundle to `robot`, a function of a connected socket. Returns the count, or the exception."""
    manifest = open_bundle(bundle).manifest
    results = []

    def run():
        try:
            results.append(serve(bundle, server.getsockname()[1], silence=silence, patience=SOON))
        except (ValueError, ConnectionError) as error:
            results.append(error)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        server.settimeout(SOON)
        mine, _ = server.accept()
        with mine:
            mine.settimeout(SOON)
            mine.sendall(encode(Kind.HELLO, payload=manifest.digest))
            next_message(mine, Kind.HELLO)
            robot(mine)
        thread.join(SOON)
    assert not thread.is_alive()
    return results[0]


def payload(change=None):
    arrays = {name: array[0] for name, array in observations().items()}
    return pack(VALUES, {**arrays, **(change or {})})


def next_message(sock, kind):
    lengths = {Kind.HELLO: (32, 32), Kind.OBSERVATION: (88, 88), Kind.COMMAND: (8, 8), Kind.STOP: (0, 500)}
    decoder = Decoder(lengths)
    while data := sock.recv(4096):
        for message in decoder.feed(data):
            if message.kind is kind:
                return message
    raise AssertionError(f"no {kind.name} was sent")


@pytest.fixture(autouse=True)
def _values(bundle):
    global VALUES
    VALUES = open_bundle(bundle).manifest.inputs


def test_serve_answers_observations_and_skips_stale_ones(bundle):
    policy = BundlePolicy.load(bundle)
    expected = policy.act({name: array[0] for name, array in observations().items()})

    def robot(sock):
        sock.sendall(b"".join(encode(Kind.OBSERVATION, n, 0, payload()) for n in range(1, 11)))
        command = next_message(sock, Kind.COMMAND)
        assert 1 <= command.sequence <= 10
        np.testing.assert_allclose(np.frombuffer(command.payload, "<f4"), expected, rtol=1e-6)
        sock.sendall(stop("done"))

    answered = serving(bundle, robot)
    assert 1 <= answered <= 10


@pytest.mark.parametrize(
    ("robot", "message"),
    [
        pytest.param(lambda s: time.sleep(2.0), "the robot has been silent for 1 s", marks=pytest.mark.slow),
        (lambda s: None, "the peer has closed the connection"),
        (lambda s: s.sendall(b"GET / HTTP/1.1\r\n"), "does not use this protocol"),
        (lambda s: s.sendall(encode(Kind.OBSERVATION, 1, 0, payload())[:60]), "in the middle of a message"),
        (lambda s: s.sendall(encode(Kind.OBSERVATION, 1, 0, b"short")), "an OBSERVATION has 5 bytes"),
        (
            lambda s: (s.sendall(encode(Kind.OBSERVATION, 0, 0, payload())), s.recv(99)),
            "OBSERVATION 0 must not follow",
        ),
        (lambda s: s.sendall(encode(Kind.COMMAND, 1, 0, b"12345678")), "this peer must not send"),
        (lambda s: s.sendall(encode(Kind.OBSERVATION, 1, 0, payload()) * 2000), ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_robot_ends_serve_with_one_line(bundle, robot, message):
    def tolerant(sock):
        with suppress(OSError):  # the policy may close the connection first
            robot(sock)

    error = serving(bundle, tolerant)
    assert isinstance(error, Exception)
    assert message in str(error)
    assert len(str(error).splitlines()) == 1


def test_serve_sends_the_reason_when_it_refuses_an_observation(bundle):
    def robot(sock):
        sock.sendall(encode(Kind.OBSERVATION, 1, 0, payload({"felt": np.array([0, np.nan], np.float32)})))
        assert "felt 'right' is nan rad" in next_message(sock, Kind.STOP).reason

    assert "felt 'right' is nan rad" in str(serving(bundle, robot))


def test_a_policy_process_imports_the_runtime_only(bundle):
    manifest = open_bundle(bundle).manifest
    robot = ToyRobot(10)
    with policy_process(bundle, manifest) as link:
        driver = Driver(link, manifest, misses=10)
        assert driver.run(robot, 5.0) is None
    assert len(robot.commands) == 10
    code = "import sys, robopolicy.runtime.__main__; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded & {"jax", "flax", "mujoco", "pybullet", "tyro", "onnx", "numba", "scipy"}


def test_a_remote_policy_connects_and_prints_its_progress(bundle):
    manifest = open_bundle(bundle).manifest
    started, ports = [], []

    def start(port):
        command = [sys.executable, "-m", "robopolicy.runtime", "serve", str(bundle), "--port", str(port)]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        ports.append(port)

    with remote_policy("127.0.0.1", 0, manifest, 60.0, start) as link:
        assert Driver(link, manifest, misses=10).run(ToyRobot(5), 5.0) is None
    _, stderr = started[0].communicate(timeout=SOON)
    assert started[0].returncode == 0
    assert stderr.splitlines()[:3] == [
        f"loading {bundle} ...",
        f"connecting to 127.0.0.1:{ports[0]} ...",
        "connected, answering observations ...",
    ]


def test_a_policy_that_cannot_start_raises_at_once(bundle, capfd):
    manifest = open_bundle(bundle).manifest
    (bundle / "policy.onnx").write_bytes(b"changed")
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"^the policy has ended"), policy_process(bundle, manifest):
        pass
    assert time.monotonic() - began < 25.0
    assert "it was changed or damaged" in capfd.readouterr().err


def test_corrupted_commands_never_keep_the_robot_from_stopping(bundle):
    """The bytes of a valid conversation, seeded, with some changed, removed or inserted."""
    rng = random.Random(4)
    commands = b"".join(encode(Kind.COMMAND, n, 0, np.zeros(2, "<f4").tobytes()) for n in range(1, 4))
    for _ in range(60):
        data = bytearray(commands)
        at = rng.randrange(len(data))
        data[at : at + rng.choice((0, 1, 8))] = rng.randbytes(rng.choice((0, 1, 8, HEADER.size)))
        robot, _, reason = drive(bundle, lambda s, data=data: s.sendall(data), ToyRobot(3))
        assert robot.stops == [reason or "the drive has ended"]
