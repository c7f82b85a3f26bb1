"""A Go2 on the loopback: what the bridge finds there, refuses, and makes of it.

The robot is a thread that stands still and ignores commands. Times are generous deadlines, not measurements.
"""

import multiprocessing
import os
import signal
import threading
import time

import numpy as np
import pytest

pytest.importorskip("cyclonedds")

from unitree_peers import manifest, state

from robopolicy.experiments.simulated_unitree import SimulatedGo2
from robopolicy.experiments.unitree_deployment import deploy_simulated_unitree
from robopolicy.experiments.unitree_faults import Faults
from robopolicy.unitree import bridge
from robopolicy.unitree.bridge import UnitreeRobot
from robopolicy.unitree.dds import LOW_CMD, LOW_STATE, RECORDS, Network, Node
from robopolicy.unitree.images import depth_image
from robopolicy.unitree.low_level import Phase
from robopolicy.unitree.records import NAMES, Layout, checksum, new_command, sealed

SOON = 10.0  # s
PACE = 0.05  # a thread that has to wait is not a robot that is lost
DEEP = np.full((24, 32), 0.3, np.float32)


@pytest.fixture(scope="module")
def network(request):
    """A network of this file and process alone."""
    return Network(domain=2, tag=f"test-{os.getpid()}")


class StandingGo2:
    """Publishes low states and images in a thread, and keeps the commands that come."""

    def __init__(self, network, shape=(24, 32), states=True):
        self.node = Node(network)
        self.states = self.node.writer(LOW_STATE, "LowState_") if states else None
        self.cameras = [self.node.image_writer(f"rt/{place}_depth") for place in ("front", "belly")]
        self.heard = self.node.records(LOW_CMD, "LowCmd_")
        self.commands, self.publishes, self.shape = [], True, shape
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()
        self.node.close()

    def _run(self):
        tick = 0
        while not self._ends.wait(0.002):
            tick += 2
            if self.publishes and self.states:
                self.states.write(state(tick))
            if tick % 10 == 0:
                for camera in self.cameras:
                    camera.write(depth_image(np.full(self.shape, 0.3, np.float32), 10**6 * tick, "camera"))
            self.commands += [command for command, _ in self.heard.take()]


@pytest.fixture
def robot(network, monkeypatch):
    monkeypatch.setattr(bridge, "PATIENCE", 1.5)
    with UnitreeRobot(manifest(), network, pace=PACE) as made:
        yield made


@pytest.mark.slow
def test_it_stands_walks_and_rests(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        began = robot.wait(0.0)
        assert began > 0
        readings = robot.observe()
        assert {name: value.shape for name, value in readings.items()} == {
            "front_depth": (24, 32),
            "belly_depth": (24, 32),
            "proprioception": (30,),
        }
        np.testing.assert_array_equal(readings["front_depth"], DEEP)
        robot.act(np.full(4, 0.02, np.float32))
        assert robot.wait(began) > began
        np.testing.assert_allclose(robot.observe()["proprioception"][22:26], 0.02 / robot._fit.scale)
        robot.hold()
        robot.stop("the test ends")
        robot.rest()
        assert robot.low.rests
        assert robot.low.reason == "the test ends"
    assert len(peer.commands) > 100
    for command in peer.commands:
        assert command["crc"] == checksum(command)
    assert peer.commands[0]["motor_cmd"]["kp"][:12].all(), "no command comes before the first state"
    assert not peer.commands[-1]["motor_cmd"]["kp"].any()
    assert robot.summary()["periods"] > 500


def test_a_peer_that_stops_damps_the_robot(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        robot.wait(0.0)
        peer.publishes = False
        with pytest.raises(ConnectionError, match="no valid rt/lowstate for"):
            robot.wait(0.0)
        assert robot.low.phase is Phase.DAMPED
        assert robot.low.command["motor_cmd"]["kd"][:12].all()


def test_a_robot_that_has_gone_is_not_waited_for(robot, network):
    with StandingGo2(network):
        robot.begin()
    robot.rest()
    assert robot.low.phase is Phase.DAMPED
    assert not robot.low.rests  # half a second of the robot is ten here


def test_a_robot_that_starts_again_is_another_peer(robot, network):
    for _ in range(2):
        with StandingGo2(network):
            robot.begin()
            robot.rest()
            threading.Event().wait(0.05)  # it goes on publishing


def test_bytes_that_are_no_message_are_a_stop_in_one_line(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        writer = peer.cameras.pop(0)._writer
        junk = writer.topic.data_type.of(depth_image(DEEP, 0, "camera"))
        sound = junk.serialize
        junk.serialize = lambda **how: sound(**how).replace(b"32FC1", b"\xff2FC1")

        def drive():
            for _ in range(50):
                writer.write(junk)
                robot.wait(0.0)
                robot.observe()
                robot.hold()

        words = "^rt/front_depth has a message that cannot be decoded: .*codec can't decode byte 0xff"
        with pytest.raises(ConnectionError, match=words) as stopped:
            drive()
        assert "\n" not in str(stopped.value)


def test_a_camera_that_stops_is_a_stop(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        peer.cameras = []

        def drive():
            for _ in range(5):
                robot.wait(0.0)
                robot.observe()
                robot.hold()

        with pytest.raises(ConnectionError, match="no image came on rt/front_depth for 3 steps"):
            drive()


def test_an_image_from_before_the_drive_does_not_count(robot, network):
    with StandingGo2(network) as peer:
        time.sleep(0.3)
        peer.cameras = []
        with pytest.raises(ConnectionError, match="nothing came on rt/belly_depth"):
            robot.begin()


def test_an_image_of_the_rise_does_not_count(robot, network):
    with StandingGo2(network) as peer:

        def stop_cameras():
            while not peer.commands:
                time.sleep(0.001)
            peer.cameras = []

        threading.Thread(target=stop_cameras, daemon=True).start()
        with pytest.raises(ConnectionError, match="no image came on rt/belly_depth once the robot stood"):
            robot.begin()


def test_messages_of_a_second_peer_are_ignored(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        robot.wait(0.0)
        forger = peer.node.writer(LOW_STATE, "LowState_")
        junk = RECORDS["LowState_"].of(state(10**6))
        junk.serialize = lambda **_: Layout(NAMES["LowState_"]).encode(junk.record) + bytes(8)
        for _ in range(50):
            forger.write(state(10**6))
            forger._writer.write(junk)
            robot.wait(0.0)
            robot.hold()
            if min(robot.low.ignored[kind] for kind in ("another peer", "undecodable")) > 3:
                break
        assert robot.low.phase is Phase.WALKING
        assert robot.low.ignored["another peer"] > 3
        assert robot.low.ignored["undecodable"] > 3


def test_of_many_states_that_wait_few_are_used(robot, network, monkeypatch):
    with StandingGo2(network):
        robot.begin()
        robot.wait(0.0)
        bridged, take, waiting = robot.low.bridged, robot._states.take, []

        def together(*settings):
            waiting.extend(take(*settings))
            taken = waiting[:] if len(waiting) >= 30 else []
            del waiting[: len(taken)]
            return taken

        monkeypatch.setattr(robot._states, "take", together)
        for _ in range(2):
            robot.wait(0.0)
            robot.hold()
        assert robot.low.phase is Phase.WALKING
        assert robot.low.bridged > bridged + 15


def test_a_low_level_that_is_held_up_for_long_damps_the_robot(robot, network, monkeypatch):
    with StandingGo2(network):
        robot.begin()
        robot.wait(0.0)
        update, held = robot.low.update, []

        def slow(message):
            if not held:
                held.append(threading.Event().wait(0.05 / PACE))
            return update(message)

        monkeypatch.setattr(robot.low, "update", slow)

        def drive():
            for _ in range(3):
                robot.wait(0.0)

        with pytest.raises(ConnectionError, match=r"the low level was held up for \d+ ms"):
            drive()
        assert robot.low.phase is Phase.DAMPED


def test_a_failure_of_the_low_level_damps_the_robot_and_is_raised(robot, network, monkeypatch):
    with StandingGo2(network) as peer:
        robot.begin()
        monkeypatch.setattr(robot.low, "update", lambda message: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            robot.wait(0.0)
        with pytest.raises(ZeroDivisionError):
            robot.rest()
        for _ in range(100):
            if not peer.commands[-1]["motor_cmd"]["kp"][:12].any():
                break
            threading.Event().wait(SOON / 100)
        motors = peer.commands[-1]["motor_cmd"][:12]
    assert not motors["kp"].any()
    assert motors["kd"].all()


def test_nothing_is_one_line(robot):
    with pytest.raises(ConnectionError, match=r"nothing came on rt/lowstate for 1\.5 s"):
        robot.begin()


def test_a_robot_without_cameras_is_named(robot, network):
    with StandingGo2(network) as peer:
        peer.cameras = peer.cameras[:1]
        with pytest.raises(ConnectionError, match="nothing came on rt/belly_depth"):
            robot.begin()


def test_images_of_another_camera_are_refused(robot, network):
    message = "rt/front_depth has 48 x 64 pixels: the bundle reads 24 x 32"
    with StandingGo2(network, shape=(48, 64)), pytest.raises(ValueError, match=message):
        robot.begin()


def test_another_program_that_commands_is_refused(robot, network):
    with StandingGo2(network) as peer:
        other = peer.node.writer(LOW_CMD, "LowCmd_")
        other.write(sealed(new_command()))
        with pytest.raises(ConnectionError, match="another program publishes rt/lowcmd"):
            robot.begin()


def test_another_program_that_commands_later_is_a_stop(robot, network):
    with StandingGo2(network) as peer:
        robot.begin()
        peer.node.writer(LOW_CMD, "LowCmd_")

        def drive():
            for _ in range(50):
                robot.wait(0.0)
                robot.hold()

        with pytest.raises(ConnectionError, match="another program publishes rt/lowcmd"):
            drive()


def test_another_program_that_commands_while_it_rises_is_a_stop(robot, network, monkeypatch):
    with StandingGo2(network) as peer:
        started = robot._find
        monkeypatch.setattr(robot, "_find", lambda: (started(), peer.node.writer(LOW_CMD, "LowCmd_")))
        monkeypatch.setattr(type(robot.low), "ready", False)
        with pytest.raises(ConnectionError, match="another program publishes rt/lowcmd"):
            robot.begin()


def test_a_robot_that_does_not_come_to_rest_is_damped(robot, network, monkeypatch):
    """As one whose rest is interrupted, it does not keep the last command."""
    with StandingGo2(network) as peer:
        robot.begin()
        monkeypatch.setattr(robot._changed, "wait_for", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            robot.rest()
        for _ in range(100):
            if not peer.commands[-1]["motor_cmd"]["kp"][:12].any():
                break
            threading.Event().wait(SOON / 100)
        motors = peer.commands[-1]["motor_cmd"][:12]
    assert not motors["kp"].any()
    assert motors["kd"].all()


def test_a_robot_whose_messages_are_all_bad_is_named(robot, network, monkeypatch):
    """A robot that does not fill the checksum, for example."""
    monkeypatch.setattr(robot, "_pace", 10.0)
    with StandingGo2(network) as peer:
        good = peer.states.write
        peer.states.write = lambda message: good(unsealed(message))
        with pytest.raises(ConnectionError, match="waits for a low state; rt/lowstate has the crc 0x0"):
            robot.begin()


def unsealed(message):
    message["crc"] = 0
    return message


def test_two_robots_are_refused(robot, network):
    with StandingGo2(network), StandingGo2(network), pytest.raises(ConnectionError, match="2 peers publish"):
        robot.begin()


def test_a_robot_of_another_type_is_refused(robot, network):
    with StandingGo2(network, states=False) as peer:
        other = peer.node.writer(LOW_STATE, "LowCmd_")
        other.write(sealed(new_command()))
        with pytest.raises(ConnectionError, match="has the type unitree_go::msg::dds_::LowCmd_"):
            robot.begin()


@pytest.mark.parametrize(("interface", "domain"), [("nowhere9", 77), ("ä", 78), ("lo", 233)])
def test_a_network_that_does_not_exist_is_one_line(interface, domain):
    with pytest.raises(ValueError, match=r"interface is '|domain is 233") as caught:
        Node(Network(interface, domain))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("pace", [0.001, -1.0, 2.0, float("nan")])
def test_a_pace_that_does_not_exist_is_refused_with_all_that_do(pace):
    words = rf"^pace is {pace}: it must be a number from 0\.01 to 1, or 0 for the lock step$"
    with pytest.raises(ValueError, match=words):
        deploy_simulated_unitree("bundle", pace=pace)


@pytest.mark.slow
def test_signals_that_reach_the_simulated_robot_do_not_end_it(network):
    with SimulatedGo2(network, "painted", {}, 0.0, Faults()) as world:
        world.begin(9000)
        [process] = multiprocessing.active_children()
        for request in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
            os.kill(process.pid, request)
        played, _ = world.end()
        assert played.cause == "interrupted"
        world.kill()
        with pytest.raises(ConnectionError, match="the simulated robot has ended"):
            world.begin(9001)
