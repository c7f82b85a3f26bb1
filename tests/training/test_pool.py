"""The pool of rollout workers: its results, and what it does when workers die."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import toy

from robopolicy.runtime.policy import OnnxPolicy
from robopolicy.training.evaluate import EpisodeError, LocalPool
from robopolicy.training.rollout import run_episode
from robopolicy.training.worker import EnvironmentSpec

POPULATION = np.random.default_rng(0).normal(size=(6, toy.PARAMETERS)).astype(np.float32)
SEEDS = [11, 12]


def pool(workers=2, deadline=60.0, **settings):
    return LocalPool([EnvironmentSpec(toy.ID, settings, "toy")], toy.policy_graph(), workers, deadline)


def evaluated(workers=2, deadline=60.0, **settings):
    made = pool(workers, deadline, **settings)
    try:
        return made.evaluate(POPULATION, SEEDS)
    finally:
        made.close()


@pytest.fixture(scope="module")
def expected():
    env = gymnasium.make(toy.ID)
    policy = OnnxPolicy(toy.policy_graph(), POPULATION[0])
    rows = []
    for parameters in POPULATION:
        policy.parameters = parameters
        rows.append([run_episode(env, policy, seed).total for seed in SEEDS])
    return np.array(rows)


@pytest.mark.parametrize("workers", [1, 3])
def test_returns_do_not_depend_on_the_workers(expected, workers):
    np.testing.assert_array_equal(evaluated(workers).returns, expected)


def test_workers_hold_no_jax():
    assert evaluated(1).outcome("jax").max() == 0.0


@pytest.mark.parametrize("misdeed", ["raise", "die"])
def test_a_fault_costs_only_its_own_episode_again(expected, tmp_path, misdeed):
    told = evaluated(2, misdeed=misdeed, seed=SEEDS[1], marker=str(tmp_path / "once"))
    np.testing.assert_array_equal(told.returns, expected)


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced_at_its_deadline(expected, tmp_path):
    told = evaluated(2, deadline=8.0, misdeed="hang", seed=SEEDS[0], marker=str(tmp_path / "once"))
    np.testing.assert_array_equal(told.returns, expected)


def test_workers_killed_from_outside_are_replaced(expected):
    made = pool(2)
    try:
        first = made.pids
        killer = threading.Timer(0.2, lambda: [os.kill(pid, signal.SIGKILL) for pid in first])
        killer.start()
        for _ in range(3):
            np.testing.assert_array_equal(made.evaluate(POPULATION, SEEDS).returns, expected)
        killer.join()
        np.testing.assert_array_equal(made.evaluate(POPULATION, SEEDS).returns, expected)
        assert not set(first) & set(made.pids)
    finally:
        made.close()


@pytest.mark.parametrize(("misdeed", "words"), [("raise", "the toy is broken"), ("die", "exit code -9")])
def test_an_episode_that_always_fails_is_named(misdeed, words):
    with pytest.raises(
        EpisodeError, match=rf"candidate \d failed 3 times with seed {SEEDS[0]} on toy: .*{words}"
    ):
        evaluated(2, misdeed=misdeed, seed=SEEDS[0])


def test_a_pool_is_as_new_after_an_error(expected):
    made = pool(2, misdeed="raise", seed=99)
    try:
        with pytest.raises(EpisodeError):
            made.evaluate(POPULATION, [99, 1])
        np.testing.assert_array_equal(made.evaluate(POPULATION, SEEDS).returns, expected)
    finally:
        made.close()


def test_an_error_of_the_caller_leaves_no_answers_behind(expected):
    def interrupt():
        raise KeyboardInterrupt

    made = pool(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            made.evaluate(POPULATION, [1, 2], on_episode=interrupt)
        np.testing.assert_array_equal(made.evaluate(POPULATION, SEEDS).returns, expected)
    finally:
        made.close()


def test_workers_leave_ctrl_c_to_the_trainer(expected):
    made = pool(2)
    try:
        before = made.pids
        for _ in range(10):  # from their start on, over the first half second
            for pid in before:
                os.kill(pid, signal.SIGINT)
            time.sleep(0.05)
        np.testing.assert_array_equal(made.evaluate(POPULATION, SEEDS).returns, expected)
        assert made.pids == before
    finally:
        made.close()


def gone(pid):
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().split()[2] == "Z"


def test_workers_end_with_a_trainer_that_is_killed_even_in_mid_episode():
    code = (
        "import json, numpy, test_pool, toy\n"
        "if __name__ == '__main__':\n"
        "    made = test_pool.pool(2, misdeed='hang', seed=7)\n"
        "    made.evaluate(test_pool.POPULATION, [1])\n"
        "    print(json.dumps(made.pids), flush=True)\n"
        "    made.evaluate(test_pool.POPULATION, [7])\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids = json.loads(trainer.stdout.readline())
    trainer.kill()
    _, said = trainer.communicate()  # to the end of what the workers, too, have to say
    for _ in range(200):
        if all(gone(pid) for pid in pids):
            break
        time.sleep(0.05)
    assert all(gone(pid) for pid in pids)
    assert said == ""


def test_a_pool_needs_a_worker():
    with pytest.raises(ValueError, match="workers is 0"):
        pool(0)
