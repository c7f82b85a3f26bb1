"""Environments as JAX programs: a whole generation on devices, and chunks in worker processes."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_worlds import PARAMETERS, SummingPolicy, ToyPolicy, ToyWorlds, act, expected

from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.experiments import evaluators
from robopolicy.experiments.environments import Environment
from robopolicy.training import device
from robopolicy.training.batch_pool import BatchPool
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.device import DeviceEvaluator, Sizes, devices_of
from robopolicy.training.es import ESConfig, train
from robopolicy.training.strategies import COMPILED, sanitised, strategy
from robopolicy.training.strategy import Settings

POPULATION = np.random.default_rng(0).normal(size=(6, PARAMETERS)).astype(np.float32)
SEEDS = [3, 14, 9]
SNES = strategy("snes", Settings(6, 0.3, 0.06))


def on_devices(places=4, search=SNES, watched=(), candidates=6, seeds=3, devices=None, policy=ToyPolicy):
    sizes = Sizes(candidates, seeds, seeds, candidates * seeds)
    functions, devices = (policy().flat_act, policy().init_state()), devices or jax.devices("cpu")[:1]
    return DeviceEvaluator({"toy": ToyWorlds()}, *functions, search, [sizes], places, devices, watched)


def in_processes(places=4, workers=2, normalised=(), policy=ToyPolicy):
    return BatchPool({"toy": ToyWorlds}, policy(normalised), workers, places)


SLOWER = [on_devices, pytest.param(in_processes, marks=pytest.mark.slow)]  # processes start for seconds


@pytest.mark.rest_slow
@pytest.mark.parametrize("make", [on_devices, in_processes])
def test_every_candidate_plays_every_seed(make):
    calls = []
    with closing(make()) as evaluator:
        # More candidates and seeds than a program is compiled for, and no multiple of a chunk.
        population, seeds = np.concatenate([POPULATION, -POPULATION[:1]]), [*SEEDS, 7]
        results = evaluator.evaluate(population, seeds, on_episode=lambda: calls.append(1))
    np.testing.assert_allclose(results.returns, expected(population, seeds), atol=1e-5)
    assert [episode.steps for episode in results.episodes[0]] == [2 + seed % 5 for seed in seeds]
    assert len(calls) == results.returns.size
    assert {episode.info["cause"] for row in results.episodes for episode in row} == {"time"}


@pytest.mark.parametrize("make", SLOWER)
def test_every_episode_has_a_state_of_its_own(make):
    with closing(make(policy=SummingPolicy)) as evaluator:
        returns = [evaluator.evaluate(POPULATION, SEEDS).returns for _ in range(2)]
    np.testing.assert_allclose(returns[0], expected(POPULATION, SEEDS, sums=True), atol=1e-5)
    np.testing.assert_array_equal(*returns)
    assert np.abs(returns[0] - expected(POPULATION, SEEDS)).max() > 0.1


@pytest.mark.parametrize("make", SLOWER)
def test_an_episode_does_not_depend_on_those_beside_it(make):
    with closing(make()) as evaluator:
        together = evaluator.evaluate(POPULATION, SEEDS).returns
        alone = [evaluator.evaluate(one[None], SEEDS).returns[0] for one in POPULATION[::-1]]
    np.testing.assert_array_equal(together, alone[::-1])


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_workers():
    returns = []
    for workers in (1, 3):
        with closing(in_processes(workers=workers)) as pool:
            returns.append(pool.evaluate(POPULATION, SEEDS).returns)
    np.testing.assert_array_equal(*returns)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_devices():
    code = """
import sys
sys.path.insert(0, sys.argv[1])
import jax, json, test_device as t
for count in (1, 3):
    bits = []
    for name in sys.argv[2:]:
        search = t.strategy(name, t.Settings(6, 0.3, 0.06))
        evaluator = t.on_devices(search=search, devices=jax.devices("cpu")[:count])
        assert evaluator.workers == count
        keys, state = t.begun(search)
        for _ in range(2):
            drawn, state, played = evaluator.generation(keys, state, t.SEEDS, 0, None, None)
            bits.append([played.returns.tolist(), search.mean(state).tolist()])
    print(json.dumps(bits))
"""
    flags = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=3"}
    folder = str(Path(__file__).parent)
    command = [sys.executable, "-c", code, folder, "snes", "cma_es"]
    run = subprocess.run(command, env=flags, capture_output=True, check=True)
    one, three = map(json.loads, run.stdout.splitlines())
    assert one == three


def begun(search):
    """Keys and first state of a search."""
    keys = jax.random.split(jax.random.key(1))
    return (keys[0], keys[1]), search.init(jax.random.key(0), jnp.arange(PARAMETERS, dtype=jnp.float32))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["snes", *(pytest.param(n, marks=pytest.mark.slow) for n in COMPILED if n != "snes")]
)
def test_a_compiled_generation_is_ask_play_and_tell(name):
    search = strategy(name, Settings(6, 0.3, 0.06))
    keys, state = begun(search)
    with closing(on_devices(search=search)) as evaluator:
        drawn, told, played = evaluator.generation(keys, state, SEEDS, 0, None, None)
    population, asked = search.ask(keys[0], begun(search)[1])
    np.testing.assert_allclose(drawn, population, atol=1e-5)
    np.testing.assert_allclose(played.returns, expected(drawn, SEEDS), atol=1e-5)
    returns = jnp.asarray(played.returns.mean(axis=1), jnp.float32)
    by_hand = search.mean(search.tell(keys[1], population, returns, asked))
    np.testing.assert_allclose(search.mean(told), by_hand, atol=1e-4)
    assert np.abs(by_hand - np.arange(PARAMETERS)).max() > 1e-3


@pytest.mark.slow
def test_a_candidate_that_diverges_counts_as_the_worst_and_touches_no_other():
    def diverging(parameters, observation, state, normaliser=None):
        action, state = act(parameters, observation, state)
        return jnp.where(parameters[0] > 0.2, jnp.nan, action), state

    search = strategy("open_es", Settings(6, 0.3, 0.06))
    keys, state = begun(search)
    state = search.init(jax.random.key(0), jnp.zeros(PARAMETERS))
    sizes = Sizes(6, 3, 3, 18)
    one = DeviceEvaluator({"toy": ToyWorlds()}, diverging, (), search, [sizes], 4, jax.devices("cpu")[:1])
    drawn, told, played = one.generation(keys, state, SEEDS, 0, None, None)
    is_bad = drawn[:, 0] > 0.2
    assert 0 < is_bad.sum() < 6
    returns, broken = sanitised(played.returns.mean(axis=1))
    assert broken == is_bad.sum()
    np.testing.assert_allclose(played.returns[~is_bad], expected(drawn[~is_bad], SEEDS), atol=1e-5)
    asked = search.ask(keys[0], search.init(jax.random.key(0), jnp.zeros(PARAMETERS)))[1]
    by_hand = search.tell(keys[1], drawn, jnp.asarray(returns, jnp.float32), asked)
    np.testing.assert_allclose(search.mean(told), search.mean(by_hand), atol=1e-5)
    assert np.isfinite(search.mean(told)).all()


@pytest.mark.parametrize("make", SLOWER)
def test_watched_observations_are_counted_and_normalised(make):
    watching = {"watched": ("point",)} if make is on_devices else {"normalised": ("point",)}
    normaliser = np.repeat(np.array([0.0, 1.0], np.float32), PARAMETERS)
    with closing(make(**watching)) as evaluator:
        plain = evaluator.evaluate(POPULATION, SEEDS, normaliser=normaliser)
        scaled = evaluator.evaluate(POPULATION, SEEDS, normaliser=2 * normaliser)
    np.testing.assert_allclose(plain.returns, expected(POPULATION, SEEDS), atol=1e-5)
    assert np.abs(scaled.returns - plain.returns).max() > 0.01
    moments = plain.episodes[2][1].moments["point"]
    assert moments.number == 2 + SEEDS[1] % 5
    assert (moments.squares <= moments.number).all()
    assert (moments.total**2 <= moments.number * moments.squares + 1e-6).all()


def test_too_many_worlds_are_refused_before_they_run(monkeypatch):
    monkeypatch.setattr(device, "machine_memory", lambda: 1000)
    with (
        closing(on_devices(places=18)) as evaluator,
        pytest.raises(ValueError, match=r"^places is 18: .* need 0\.0 GB, .* at most about [1-9]\d? fit$"),
    ):
        evaluator.prepare(PARAMETERS)


def test_a_subclass_of_a_batched_task_is_played_as_it_is(monkeypatch):
    class Changed(SteppingStones):
        pass

    monkeypatch.setattr(evaluators, "task_class", lambda name: Changed)
    assert evaluators.EvaluatorConfig().engine_for(Environment("changed")) is None
    assert not evaluators.is_batched(Environment("changed", "jax"))
    monkeypatch.setattr(evaluators, "task_class", lambda name: SteppingStones)
    assert evaluators.EvaluatorConfig().engine_for(Environment("stepping-stones")) == "jax"
    on_go2 = Environment("stepping-stones", others={"robot": "go2"})
    assert evaluators.EvaluatorConfig().engine_for(on_go2) is None
    assert evaluators.is_batched(Environment("stepping-stones", "jax"))


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"^device is 'tpu': JAX finds cpu here$"):
        devices_of("tpu", 1)


@pytest.mark.slow
def test_a_worker_that_dies_repeats_its_chunk():
    with closing(in_processes()) as pool:
        pool.evaluate(POPULATION[:1], SEEDS)
        for worker in pool._places._processes._workers:
            worker.process.kill()
        returns = pool.evaluate(POPULATION, SEEDS).returns
    np.testing.assert_allclose(returns, expected(POPULATION, SEEDS), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("make", ["device", "processes"])
def test_a_resumed_search_has_the_same_bits(tmp_path, make):
    def run(folder, generations, resume=False):
        config = ESConfig(generations, 6, (3,), evaluate_every=2, held_out=3, strategy="open_es")
        search = config.make_strategy()
        made = (
            on_devices(search=search, watched=("point",))
            if make == "device"
            else in_processes(normalised=("point",))
        )
        run = RunFolder(tmp_path / folder)
        if not resume:
            run.create({})
        with closing(made) as evaluator:
            return train(
                config,
                run=run,
                initial=np.zeros(PARAMETERS),
                features={},
                evaluator=evaluator,
                normalised={"point": PARAMETERS},
                resume=resume,
            )

    whole = run("whole", 4)
    run("parts", 2)
    parts = run("parts", 4, resume=True)
    assert whole["held_out/distance"] == parts["held_out/distance"]
    assert whole["return_mean"] == parts["return_mean"] > 0
    states = [RunFolder(tmp_path / name).load(None)[1] for name in ("whole", "parts")]
    assert states[0].keys() == states[1].keys()
    for name, array in states[0].items():
        if not name.startswith("progress/seconds"):
            np.testing.assert_array_equal(array, states[1][name], err_msg=name)
