"""The steps of a drive: when they begin, which are late, and when they stop."""

import math
import time

import numpy as np
import pytest
from test_driving import answers, drive
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


def test_a_late_step_shifts_those_after_it(bundle):
    ends, dues = [], []

    class Slow(ToyRobot):
        def act(self, command):
            time.sleep(0.1 if not ends else 0.0)  # five periods
            ends.append(time.monotonic())

    def wait(due):
        dues.append(due)
        return due

    driver = Driver(Script([1] * 4), open_bundle(bundle).manifest, wait=wait)
    assert driver.run(Slow(4), 100.0) is None
    assert dues[2] >= ends[0] + 0.02 - 1e-9
    assert np.diff(dues).min() > 0.02 - 1e-9


def test_steps_after_an_overrun_of_the_robot_are_late(bundle):
    class Slow(ToyRobot):
        def act(self, command):
            super().act(command)
            time.sleep(0.05)  # of a period of 0.02 s

    _, record, _ = drive(bundle, answers, Slow(steps=4))
    assert record.steps == 4
    assert record.late >= 3  # all but the first, which may be late on a busy machine
    assert min(record.jitter[1:]) >= 0.03


@pytest.mark.parametrize("seconds", [math.nan, -1.0, "3", None])
def test_a_duration_that_is_no_number_is_refused(bundle, seconds):
    robot = ToyRobot()
    driver = Driver(None, open_bundle(bundle).manifest)
    with pytest.raises(ValueError, match=r"^seconds is .*: it must be a number of 0 or more$"):
        driver.run(robot, seconds)
    assert not robot.stops
