"""A simulated Go2 that walks by its low level alone, on painted ground, and what faults of the network do."""

import sys
from functools import partial

import numpy as np
import pytest
from unitree_peers import SCALE, low_level, state

from robopolicy.control.robots import GO2
from robopolicy.experiments.simulated_unitree import WATCHDOG, Electronics, driven_stones
from robopolicy.experiments.unitree_deployment import deploy_unitree
from robopolicy.experiments.unitree_faults import FORGERIES, Faults, FaultyLine
from robopolicy.unitree.low_level import Phase
from robopolicy.unitree.records import checksum, new_command, sealed

SECOND = 500  # periods


class World:
    """Robot and low level in lock step, `line` between them."""

    def __init__(self, line=lambda period, state: [state], faults=None):
        self.low, self.periods = low_level(), 0
        self._line = line
        self.stones = driven_stones(self._drive, "painted", {})
        self.stones.reset(seed=9000)
        self.electronics = Electronics(GO2, self.stones.np_random)
        if faults:
            self._line = partial(_send, FaultyLine(faults, self.stones.np_random))

    def _drive(self, body):
        heard = [self.low.update(state) for state in self._line(self.periods, self.electronics.state(body))]
        if not any(heard):
            self.low.missing(0.002)
        self.low.act(0.0 * SCALE)
        if self.low.phase is not Phase.WAITING:
            self.electronics.obey(self.low.command)
        return self.electronics.motors()

    def run(self, periods):
        """The true state at the end."""
        for _ in range(periods):
            self.stones.walker.advance()
            self.periods += 1
        return self.stones.walker.truth


def _send(line, period, state):
    return line.send(state)


def is_at_rest(truth):
    return truth.tilt < 0.15 and truth.position[2] < 0.12 and np.abs(truth.rates).max() < 1.0


@pytest.mark.slow
def test_it_walks_and_lies_down():
    world = World()
    truth = world.run(4 * SECOND)
    assert truth.position[0] > 1.2
    assert abs(truth.position[1]) < 0.05
    assert abs(world.stones.walker.true_ground) < 0.01
    place = [*truth.position[:2], truth.attitude[2]]
    np.testing.assert_allclose(world.low.readings["odometry"], place, atol=0.1)
    world.low.stop("the test ends")
    truth = world.run(5 * SECOND)
    assert world.low.rests
    assert is_at_rest(truth)


@pytest.mark.slow
def test_it_walks_on_through_faults():
    world = World(faults=Faults(drop=0.03, delay=0.03, swap=0.03, forge=0.03))
    truth = world.run(6 * SECOND)
    assert world.low.reason is None
    assert truth.position[0] > 2.0
    assert {"old", "checksum", "not finite", "jump", "joint count"} <= set(world.low.ignored)
    assert world.low.bridged > 50


@pytest.mark.slow
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_robot_whose_messages_are_all_forged_comes_to_rest(forgery):
    rng = np.random.default_rng(0)

    def line(period, state):
        return [FORGERIES[forgery](state, rng)] if period > 2 * SECOND else [state]

    world = World(line)
    truth = world.run(4 * SECOND)
    assert world.low.phase is Phase.DAMPED
    assert "no valid rt/lowstate for 42 ms: " in world.low.reason
    assert is_at_rest(truth)


@pytest.mark.slow
def test_without_commands_the_simulated_robot_damps_itself():
    world = World()
    world.run(2 * SECOND)
    world.electronics.obey = lambda command: None
    assert is_at_rest(world.run(2 * SECOND))
    assert world.electronics.stale > SECOND


def test_the_electronics_refuse_bad_commands_and_damp_without_good_ones():
    electronics = Electronics(GO2, np.random.default_rng(0))
    command = new_command()
    command["motor_cmd"]["kp"] = 3.0
    electronics.obey(command)  # without its checksum
    other = new_command()
    other["head"] = 0
    electronics.obey(sealed(other))
    assert (electronics.refused, electronics.commanded) == (2, False)
    assert (electronics.motors().damping > 0).all()
    electronics.obey(sealed(command))
    for _ in range(WATCHDOG):
        assert (electronics.motors().stiffness == 3.0).all()
    assert (electronics.motors().stiffness == 0.0).all()


@pytest.mark.parametrize("faults", [Faults(drop=0.2), Faults(delay=0.2), Faults(swap=0.2), Faults(forge=0.2)])
def test_a_faulty_line_does_what_it_says(faults):
    name = next(name for name, value in vars(faults).items() if value)
    rng = np.random.default_rng(0)
    line, sent, arrived = FaultyLine(faults, rng), [], []
    for tick in range(2, 4002, 2):
        sent.append(tick)
        arrived.append(line.send(state(tick)))
    came = [message for messages in arrived for message in messages]
    ticks = [int(message["tick"]) for message in came]
    good = [message for message in came if checksum(message) == int(message["crc"])]
    if name == "drop":
        assert 300 < 2000 - len(ticks) < 500
        assert ticks == sorted(ticks)
    if name == "delay":
        assert ticks == sorted(ticks)
        assert 2000 - len(ticks) < 5
        assert max(len(messages) for messages in arrived) > 1
    if name == "swap":
        assert sorted(ticks) == sent[: len(ticks)]
        assert ticks != sorted(ticks)
    if name == "forge":
        assert 300 < len(ticks) - 2000 < 500
        assert len(good) > 2000, "some forgeries have their checksum right"


def test_a_cyclone_dds_without_its_library_is_one_line(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("cyclonedds", "robopolicy.unitree.dds"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("robopolicy.unitree.dds", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "cyclonedds").mkdir()
    (tmp_path / "cyclonedds" / "__init__.py").write_text("raise Exception('no library,\\nanywhere')")
    with pytest.raises(ValueError, match="Go2 on DDS, and Cyclone DDS cannot be loaded: no library") as error:
        deploy_unitree("bundle", "lo")
    assert "\n" not in str(error.value)
