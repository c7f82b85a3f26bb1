"""The steps of a drive: when they begin, which are late, and when they stop."""

import math
from itertools import count

import numpy as np
import pytest
from toy_bundle import ToyRobot

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.protocol import HEADER, Kind, Message
from robopolicy.runtime.robot import Driver


class Script:
    """A link to a policy that answers some steps, and is too late for the others."""

    def __init__(self, answered):
        self._answered = iter(answered)

    def send(self, content, patience=1.0):
        self._sequence = HEADER.unpack_from(content)[6]

    def receive(self, until):
        command = np.zeros(2, "<f4").tobytes()
        return Message(Kind.COMMAND, self._sequence, 0, command) if next(self._answered) else None


@pytest.mark.parametrize(("answered", "stops"), [((0, 0, 1) * 3, False), ((0, 0, 1, 0, 0, 0), True)])
def test_only_misses_in_a_row_stop_the_robot(bundle, answered, stops):
    driver = Driver(Script(answered), open_bundle(bundle).manifest, misses=3, wait=lambda due: due)
    reason = driver.run(ToyRobot(len(answered)), 100.0)
    assert reason == ("no command came in time, 3 times in a row" if stops else None)
    assert driver.record.missed == answered.count(0)


def test_the_reason_of_a_stop_is_that_of_the_latest_drive(bundle):
    driver = Driver(Script((0, 1)), open_bundle(bundle).manifest, misses=1, wait=lambda due: due)
    assert driver.run(ToyRobot(1), 100.0) == "no command came in time, 1 time in a row"
    assert driver.run(ToyRobot(1), 100.0) is None
    assert (driver.record.stopped, driver.record.steps) == (None, 2)


class Clock:
    """In place of the module `time`."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def monotonic_ns(self):
        return round(1e9 * self.now)

    def sleep(self, seconds):
        self.now += seconds


class Slow(ToyRobot):
    """A robot that takes its time for each command: a period is 0.02 s."""

    def __init__(self, clock, *seconds):
        super().__init__(len(seconds))
        self._clock, self._seconds, self.begins = clock, iter(seconds), []

    def act(self, command):
        self.begins.append(self._clock.now)
        self._clock.sleep(next(self._seconds))


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("robopolicy.runtime.robot.time", clock)
    return clock


def test_a_step_after_an_overrun_is_late_and_shifts_those_after_it(bundle, clock):
    robot, driver = Slow(clock, 0.05, 0.05, 0.0, 0.0), Driver(Script([1] * 4), open_bundle(bundle).manifest)
    assert driver.run(robot, 100.0) is None
    np.testing.assert_allclose(np.diff(robot.begins), [0.05, 0.05, 0.02])
    np.testing.assert_allclose(driver.record.jitter, [0.0, 0.03, 0.03, 0.0], atol=1e-9)
    assert driver.record.late == 2


def test_no_step_begins_after_the_last_second(bundle, clock):
    driver = Driver(Script([1] * 9), open_bundle(bundle).manifest)
    driver.run(Slow(clock, *[0.05] * 9), 0.04)
    assert driver.record.steps == 1


def test_an_overrun_does_not_shift_the_clock_of_a_robot(bundle, clock):
    began, steps = clock.now, count()

    def wait(due):
        planned = began + 0.001 + 0.0201 * next(steps)  # it is a little slower
        clock.sleep(max(0.0, planned - clock.now))
        return planned

    driver = Driver(Script([1] * 9), open_bundle(bundle).manifest, wait=wait)
    driver.run(Slow(clock, 0.0, 0.0, 0.035, *[0.0] * 6), 0.09)
    assert driver.record.steps == 5
    assert driver.record.late == 1


@pytest.mark.parametrize("seconds", [math.nan, -1.0, "3", None])
def test_a_duration_that_is_no_number_is_refused(bundle, seconds):
    robot = ToyRobot()
    driver = Driver(None, open_bundle(bundle).manifest)
    with pytest.raises(ValueError, match=r"^seconds is .*: it must be a number of 0 or more$"):
        driver.run(robot, seconds)
    assert not robot.stops
