"""The same tests for all evaluators: returns, and workers that die, hang or raise."""

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import toy

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training import ray_pool
from robopolicy.training.evaluate import EpisodeError
from robopolicy.training.lockstep import LockStep
from robopolicy.training.pool import LocalPool
from robopolicy.training.ray_pool import RayPool
from robopolicy.training.rollout import run_episode
from robopolicy.training.worker import EnvironmentSpec, Player

POPULATION = np.random.default_rng(0).normal(size=(6, toy.PARAMETERS)).astype(np.float32)
SEEDS = [11, 12]

with_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is an extra")
EVERY = [
    "local",
    pytest.param("vector", marks=pytest.mark.slow),
    pytest.param("ray", marks=[pytest.mark.slow, with_ray]),
]


@pytest.fixture(scope="module", autouse=True)
def cluster(request):
    """One Ray cluster for all tests here, since its start takes seconds."""
    needed = any("ray" in item.name for item in request.session.items if item.path == request.path)
    ray = pytest.importorskip("ray") if needed and importlib.util.find_spec("ray") else None
    if ray is not None:
        ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    if ray is not None:
        ray.shutdown()


def made(kind, workers=2, deadline=60.0, watched=(), normalises=False, **settings):
    environments = [EnvironmentSpec(toy.ID, settings, "toy")]
    if kind == "vector":
        # Fewer places than episodes, and no multiple of the workers.
        chosen = toy.normalising_act if normalises else toy.act
        return LockStep(environments, chosen, (), workers, 5, deadline, watched)
    kind = {"local": LocalPool, "ray": RayPool}[kind]
    graph = toy.normalising_graph() if normalises else toy.policy_graph()
    return kind(environments, graph, workers, deadline, watched)


def evaluated(kind, *arguments, **settings):
    evaluator = made(kind, *arguments, **settings)
    try:
        return evaluator.evaluate(POPULATION, SEEDS)
    finally:
        evaluator.close()


def players(evaluations):
    """Process ids of the workers that played."""
    return {int(episode.info["pid"]) for row in evaluations.episodes for episode in row}


def children():
    return {process.pid for process in multiprocessing.active_children()}


class Shared(dict):
    """Evaluators of an environment without faults, by kind."""

    def __missing__(self, kind):
        self[kind] = made(kind)
        return self[kind]

    def close(self):
        while self:
            self.popitem()[1].close()


@pytest.fixture(scope="module")
def shared(cluster):
    with closing(Shared()) as evaluators:
        yield evaluators


@pytest.fixture
def ray_without_cluster(shared):
    shared.close()
    ray = importlib.import_module("ray")
    ray.shutdown()
    return ray


@pytest.fixture(scope="module")
def expected():
    env = gymnasium.make(toy.ID)
    policy = OnnxPolicy(toy.policy_graph(), POPULATION[0])
    rows = []
    for parameters in POPULATION:
        policy.parameters = parameters
        rows.append([run_episode(env, policy, seed).total for seed in SEEDS])
    return np.array(rows)


@pytest.mark.slow
def test_a_place_in_lock_step_begins_each_episode_with_the_first_state():
    env, wanted = gymnasium.make(toy.ID), np.zeros((len(POPULATION), len(SEEDS)))
    for row, parameters in enumerate(POPULATION):
        for column, seed in enumerate(SEEDS):
            state = np.zeros(toy.PARAMETERS, np.float32)

            def act(observation, parameters=parameters):
                nonlocal state
                action, state = toy.summing_act(parameters, observation, state)
                return action

            wanted[row, column] = run_episode(env, act, seed).total
    first = np.zeros(toy.PARAMETERS, np.float32)
    # Five places for more episodes, and then for fewer: some places idle beside the others.
    with closing(LockStep([EnvironmentSpec(toy.ID, {}, "toy")], toy.summing_act, first, 1, 5)) as evaluator:
        found = evaluator.evaluate(POPULATION, SEEDS).returns
        again = evaluator.evaluate(POPULATION[:1], SEEDS[:1]).returns
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(again, wanted[:1, :1], rtol=1e-5)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", EVERY)
def test_returns_do_not_depend_on_the_evaluator_or_its_workers(expected, kind, workers):
    np.testing.assert_array_equal(evaluated(kind, workers).returns, expected)


@pytest.mark.parametrize("kind", EVERY)
def test_episodes_hold_moments_of_watched_observations(kind):
    episode = evaluated(kind, watched=("point",)).episodes[2][1]
    env = gymnasium.make(toy.ID)
    point = env.reset(seed=SEEDS[1])[0]["point"].astype(np.float64)
    number, total, squares = episode.moments["point"]
    assert number == 3  # the observation after the last action led to none
    np.testing.assert_allclose(total, 3 * point, rtol=1e-12)
    np.testing.assert_allclose(squares, 3 * point**2, rtol=1e-12)


@pytest.mark.parametrize("kind", EVERY)
def test_all_candidates_normalise_observations_alike(kind):
    evaluator = made(kind, normalises=True)
    env = gymnasium.make(toy.ID)
    points = {seed: env.reset(seed=seed)[0]["point"] for seed in SEEDS}
    try:
        for shift, scale in ((0.0, 1.0), (0.5, 2.0)):
            normaliser = np.repeat(np.float32([shift, scale]), toy.PARAMETERS)
            evaluations = evaluator.evaluate(POPULATION, SEEDS, normaliser=normaliser)
            # In each of three steps the policy acts on the point that it is rewarded to act as.
            actions = np.array([[p * (points[s] - shift) * scale for s in SEEDS] for p in POPULATION])
            wanted = -3 * np.square(actions - np.array([points[s] for s in SEEDS])).sum(axis=-1)
            np.testing.assert_allclose(evaluations.returns, wanted, rtol=1e-5)
    finally:
        evaluator.close()


def test_workers_do_not_import_jax(shared):
    assert shared["local"].evaluate(POPULATION, SEEDS).outcome("jax").max() == 0.0


@pytest.mark.parametrize("fault", ["raise", "die"])
@pytest.mark.parametrize("kind", EVERY)
def test_a_failed_episode_is_repeated(expected, tmp_path, kind, fault):
    evaluations = evaluated(kind, fault=fault, seed=SEEDS[1], marker=str(tmp_path / "once"))
    np.testing.assert_array_equal(evaluations.returns, expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_a_hanging_worker_is_replaced_at_its_deadline(expected, tmp_path, kind):
    evaluations = evaluated(kind, deadline=8.0, fault="hang", seed=SEEDS[0], marker=str(tmp_path / "once"))
    np.testing.assert_array_equal(evaluations.returns, expected)


@pytest.mark.parametrize("kind", EVERY)
def test_killed_workers_are_replaced(shared, expected, kind):
    evaluator = shared[kind]
    first = players(evaluator.evaluate(POPULATION, SEEDS))
    killer = threading.Timer(0.02, lambda: [os.kill(pid, signal.SIGKILL) for pid in first])
    killer.start()
    for _ in range(3):
        np.testing.assert_array_equal(evaluator.evaluate(POPULATION, SEEDS).returns, expected)
    killer.join()
    after = evaluator.evaluate(POPULATION, SEEDS)
    np.testing.assert_array_equal(after.returns, expected)
    assert not first & players(after)


@pytest.mark.parametrize("kind", ["local", pytest.param("vector", marks=pytest.mark.slow)])
def test_an_episode_whose_answer_is_cut_off_is_repeated(shared, expected, kind, monkeypatch):
    received, cut = Connection.recv, []

    def recv(connection):
        if len(cut) < 2:
            cut.append(connection)
            raise OSError(
                "got end of file during message"
            )  # as from a worker that is killed while it answers
        return received(connection)

    evaluator = shared[kind]
    with monkeypatch.context() as patched:
        patched.setattr(Connection, "recv", recv)
        evaluations = evaluator.evaluate(POPULATION, SEEDS)
    np.testing.assert_allclose(evaluations.returns, expected, rtol=1e-6)
    assert len(cut) == 2


@pytest.mark.slow
@with_ray
def test_workers_that_cannot_start_are_one_clear_error(monkeypatch):
    class Unable(Player):
        def __init__(self, *arguments):
            raise ModuleNotFoundError("No module named 'an_engine'")

    monkeypatch.setattr(ray_pool, "Player", Unable)
    evaluator = made("ray")
    with pytest.raises(EpisodeError, match=r"no worker can be started on the cluster.*an_engine"):
        evaluator.evaluate(POPULATION, SEEDS)
    evaluator.close()


@pytest.mark.rest_slow
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("fault", ["raise", "die"])
def test_the_error_names_an_episode_that_always_fails(kind, fault):
    words = "the toy is broken" if fault == "raise" else "its worker (ended with exit code -9|was lost)"
    # The other episodes of a lock-step process fail with the one that kills it.
    seed = rf"{SEEDS[0]}|{SEEDS[1]}" if kind == "vector" else SEEDS[0]
    with pytest.raises(
        EpisodeError, match=rf"candidate \d failed 3 times with seed ({seed}) on toy: .*{words}"
    ):
        evaluated(kind, fault=fault, seed=SEEDS[0])


@with_ray
@pytest.mark.slow
def test_a_machine_of_a_cluster_without_a_compiler_ends_the_run_with_its_reason(monkeypatch):
    class Without(Player):
        def prepare(self):
            os.environ["CC"] = "no-such-compiler"
            super().prepare()

    monkeypatch.setattr(ray_pool, "Player", Without)
    evaluator = RayPool([EnvironmentSpec(toy.ID, {}, "toy")], c_graph(toy.policy_graph()), 1)
    words = "a worker cannot start on the cluster: CompilerError: CC is 'no-such-compiler': there is no such"
    with pytest.raises(EpisodeError, match=words):
        evaluator.evaluate(POPULATION, SEEDS)
    evaluator.close()


@pytest.mark.parametrize("kind", EVERY)
def test_an_evaluator_closes_what_raised_and_works_after_an_error(expected, tmp_path, kind):
    closed = tmp_path / "closed"
    evaluator = made(kind, fault="raise", seed=99, closed=str(closed))
    try:
        with pytest.raises(EpisodeError, match="the toy is broken"):
            evaluator.evaluate(POPULATION, [99, 1])
        assert closed.exists()
        np.testing.assert_array_equal(evaluator.evaluate(POPULATION, SEEDS).returns, expected)
    finally:
        evaluator.close()


@pytest.mark.parametrize("kind", EVERY)
def test_late_answers_after_an_error_of_the_caller_are_discarded(shared, expected, kind):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shared[kind].evaluate(POPULATION, [1, 2], on_episode=interrupt)
    np.testing.assert_array_equal(shared[kind].evaluate(POPULATION, SEEDS).returns, expected)


@pytest.mark.parametrize("kind", ["local", pytest.param("vector", marks=pytest.mark.slow)])
def test_workers_ignore_ctrl_c(expected, kind):
    evaluator = made(kind)
    try:
        before = children()
        for _ in range(10):  # from their start on, over the first half second
            for pid in before:
                os.kill(pid, signal.SIGINT)
            time.sleep(0.05)
        np.testing.assert_array_equal(evaluator.evaluate(POPULATION, SEEDS).returns, expected)
        assert children() == before
    finally:
        evaluator.close()


def gone(pid):
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().split()[2] == "Z"


@pytest.mark.slow
def test_workers_end_in_mid_episode_if_the_trainer_is_killed():
    code = (
        "import json, test_evaluators\n"
        "if __name__ == '__main__':\n"
        "    made = test_evaluators.made('local', 2, fault='hang', seed=7)\n"
        "    made.evaluate(test_evaluators.POPULATION, [1])\n"
        "    print(json.dumps([*test_evaluators.children()]), flush=True)\n"
        "    made.evaluate(test_evaluators.POPULATION, [7])\n"
    )
    trainer = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids = json.loads(trainer.stdout.readline())
    trainer.kill()
    _, errors = trainer.communicate()  # returns when the workers, too, have closed the stream
    for _ in range(200):
        if all(gone(pid) for pid in pids):
            break
        time.sleep(0.05)
    assert all(gone(pid) for pid in pids)
    assert errors == ""


@pytest.mark.parametrize("kind", EVERY)
def test_an_evaluator_refuses_no_workers(kind):
    with pytest.raises(ValueError, match="workers is 0"):
        made(kind, 0)


@pytest.mark.slow
@with_ray
def test_a_ray_pool_does_not_end_a_cluster_of_its_caller():
    made("ray", 1).close()
    assert importlib.import_module("ray").is_initialized()


@pytest.mark.slow
@with_ray
def test_a_ray_pool_ends_a_cluster_that_it_started(ray_without_cluster):
    ray = ray_without_cluster
    ray_pool.check_cluster(None)
    assert not ray.is_initialized()
    pool = made("ray", 1)
    assert ray.is_initialized()
    pool.close()
    assert not ray.is_initialized()


@with_ray
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:1", "no Ray cluster answers there"),
        ("somewhere", "must be 'auto', host:port"),
        ("127.0.0.1:1²", "must be 'auto', host:port"),
        ("127.0.0.1:99999", "no Ray cluster answers there"),
    ],
)
def test_an_unreachable_cluster_is_one_clear_error(ray_without_cluster, address, words):
    with pytest.raises(ValueError, match=words) as caught:
        RayPool([EnvironmentSpec(toy.ID, {}, "toy")], toy.policy_graph(), 1, address=address)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@with_ray
def test_episodes_of_a_lost_node_are_repeated(ray_without_cluster, expected):
    cluster = importlib.import_module("ray.cluster_utils").Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    node = cluster.add_node(num_cpus=1)
    evaluator = RayPool([EnvironmentSpec(toy.ID, {}, "toy")], toy.policy_graph(), 2, address=cluster.address)
    try:
        nodes = set()
        while len(nodes) < 2:  # one worker on each node
            nodes |= players(evaluator.evaluate(POPULATION, SEEDS))
        lost = threading.Timer(0.3, lambda: cluster.remove_node(node, allow_graceful=False))
        lost.start()
        for _ in range(3):
            np.testing.assert_array_equal(evaluator.evaluate(POPULATION, SEEDS).returns, expected)
        lost.join()
        np.testing.assert_array_equal(evaluator.evaluate(POPULATION, SEEDS).returns, expected)
    finally:
        evaluator.close()
        cluster.shutdown()
