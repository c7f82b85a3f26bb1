"""What a drive counts as late, and which durations it refuses."""

import math
import time

import pytest
from test_driving import answers, drive
from toy_bundle import ToyRobot

from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.robot import Driver


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
