"""A policy that was trained on one robot, on another."""

import numpy as np
import pytest

from robopolicy.experiments.default_policies import transferred
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import evaluate
from robopolicy.experiments.runs import load

ON_GO2 = Environment("stepping-stones", "mujoco", "paper", 4.0, {"robot": "go2"})


def test_a_transferred_policy_keeps_its_parameters_and_has_the_geometry_of_the_robot():
    trained = load("stepping-stones-hard")
    moved = transferred(trained, ON_GO2)
    np.testing.assert_array_equal(moved.parameters, trained.parameters)
    assert [place.mount[1] for place in moved.config.footholds] == pytest.approx([0.31, 0.2677], abs=1e-3)
    same = transferred(trained, Environment("stepping-stones", "mujoco", "paper"))
    assert same.config == trained.config


def test_a_policy_without_geometry_is_not_transferred():
    with pytest.raises(ValueError, match=r"^policy is 'bimanual-sweep-angular': it holds no geometry"):
        transferred(load("bimanual-sweep-angular"), ON_GO2)


def test_a_policy_is_not_transferred_to_a_task_with_other_readings():
    with pytest.raises(ValueError, match=r"^policy 'stepping-stones-memory' reads odometry \[3\]: the task"):
        transferred(load("stepping-stones-memory"), ON_GO2)


@pytest.mark.slow
def test_a_policy_of_the_laikago_walks_go2_with_its_geometry_and_falls_without():
    trained = load("stepping-stones-hard")
    assert evaluate(transferred(trained, ON_GO2), ON_GO2, [9000]).causes == {"time": 1}
    assert evaluate(trained, ON_GO2, [9000]).causes == {"foot in a gap": 1}
