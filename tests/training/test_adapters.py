"""The adapters for the trainers of EvoJAX and evosax, against episodes of a batch of toy worlds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_worlds import PARAMETERS, SummingPolicy, ToyPolicy, ToyWorlds, expected

from robopolicy.training.evojax_task import DIVERGED, WorldsNetwork, WorldsTask
from robopolicy.training.evosax_problem import WorldsProblem

POPULATION = np.random.default_rng(0).normal(size=(4, PARAMETERS)).astype(np.float32)
BROKEN = POPULATION * np.array([[1.0], [np.nan], [1.0], [1.0]], np.float32)
SEEDS = [3, 14, 9]


def fitness_of(population, episodes, policy=ToyPolicy):
    problem = WorldsProblem(ToyWorlds(), policy(), SEEDS, episodes)
    key = jax.random.key(0)
    return problem.eval(key, jnp.asarray(population), problem.init(key))


def test_evosax_minimises_the_negative_mean_return():
    fitness, state, outcomes = fitness_of(POPULATION, len(SEEDS))
    np.testing.assert_allclose(-fitness, expected(POPULATION, SEEDS).mean(axis=1), atol=1e-5)
    assert int(state.counter) == 1
    assert outcomes["distance"].shape == (4,)
    assert not outcomes["not_finite"].any()
    with pytest.raises(ValueError, match=r"^episodes is 4: it must be from 1 to 3, the number of seeds$"):
        fitness_of(POPULATION, 4)


def test_a_key_of_evosax_selects_the_courses_of_all_candidates():
    returns = expected(POPULATION, SEEDS)
    fitness, _, _ = fitness_of(POPULATION, 1)
    assert any(np.allclose(-fitness, returns[:, one], atol=1e-5) for one in range(len(SEEDS)))


def test_evosax_ranks_a_candidate_that_diverges_last():
    fitness, _, outcomes = fitness_of(BROKEN, len(SEEDS))
    fitness = np.asarray(fitness)
    assert outcomes["not_finite"].tolist() == [False, True, False, False]
    assert fitness[1] == max(fitness)
    sound = [0, 2, 3]
    np.testing.assert_allclose(-fitness[sound], expected(POPULATION, SEEDS).mean(axis=1)[sound], atol=1e-5)


def rollout(population, policy=ToyPolicy):
    """Rewards [T, N] and ends [T, N] of EvoJAX's loop, where all candidates play the course of one seed."""
    task, network = WorldsTask(ToyWorlds(), SEEDS[:1], "point"), WorldsNetwork(policy(), "point")
    assert (task.obs_shape, task.act_shape) == ((PARAMETERS,), (PARAMETERS,))
    assert network.num_params == PARAMETERS
    state = task.reset(jax.random.split(jax.random.PRNGKey(0), len(population)))
    memory, rewards, ends = network.reset(state), [], []
    assert {len(leaf) for leaf in jax.tree.leaves(memory)} == {len(population)}  # EvoJAX splits by this axis
    for _ in range(task.max_steps):
        actions, memory = network.get_actions(state, jnp.asarray(population), memory)
        state, reward, done = task.step(state, actions)
        rewards.append(reward)
        ends.append(done)
    return np.array(rewards), np.array(ends)


def test_a_rollout_of_evojax_has_the_returns_and_lengths_of_the_episodes():
    rewards, ends = rollout(POPULATION)
    np.testing.assert_allclose(rewards.sum(axis=0), expected(POPULATION, SEEDS[:1])[:, 0], atol=1e-5)
    assert (np.argmax(ends > 0, axis=0) + 1).tolist() == 4 * [2 + SEEDS[0] % 5]


def test_evojax_sees_a_reward_that_is_not_finite_as_the_worst():
    rewards, _ = rollout(BROKEN)
    assert (rewards[0] == DIVERGED).tolist() == [False, True, False, False]
    assert np.isfinite(rewards).all()


def test_a_state_goes_from_step_to_step_in_both_adapters():
    wanted = expected(POPULATION, SEEDS, sums=True)
    fitness, _, _ = fitness_of(POPULATION, len(SEEDS), SummingPolicy)
    np.testing.assert_allclose(-fitness, wanted.mean(axis=1), atol=1e-5)
    rewards, _ = rollout(POPULATION, SummingPolicy)
    np.testing.assert_allclose(rewards.sum(axis=0), wanted[:, 0], atol=1e-5)
    assert np.abs(wanted - expected(POPULATION, SEEDS)).max() > 0.1
