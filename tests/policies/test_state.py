"""A policy with a state: an integrator, whose action reads the sum of all that it has seen in an episode."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import robopolicy
from robopolicy.costs.flops import count_step
from robopolicy.experiments.default_policies import new_policy
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.players import player
from robopolicy.experiments.recorded_heads import recorded_heads
from robopolicy.policies.base import PolicyFunctions, flatten
from robopolicy.policies.catalogue import KINDS, Kind, by_path
from robopolicy.policies.default_iap import default_iap
from robopolicy.policies.policy import Policy

ACTIONS = 3
EYE = np.eye(ACTIONS, dtype=np.float32)


@dataclass(frozen=True)
class Integrator:
    """Settings of the policy action = tanh(w * sum of observations)."""

    actions: int = ACTIONS
    label: str = "integrator"


def integrator(config, constants):
    def inspect(parameters, features, observation, state):
        total = state["total"] + observation["joints"]
        return {"action": jnp.tanh(parameters * total), "scores": total}, {"total": total}

    def act(*arguments):
        results, state = inspect(*arguments)
        return results["action"], state

    return PolicyFunctions(
        init=lambda key: jax.random.normal(key, (config.actions,)),
        init_features=lambda key: {
            "draws": (),
            "level": {},
            "first": jnp.full(config.actions, 0.5, jnp.float32),
        },
        act=act,
        inspect=inspect,
        attended=lambda *arguments: (),
        ranked=lambda *arguments: {},
        observation_shapes={"joints": (config.actions,)},
        action_size=config.actions,
        init_state=lambda features: {"total": features["first"]},
    )


@pytest.fixture
def policy(monkeypatch):
    monkeypatch.setitem(KINDS, "integrator", Kind(Integrator, "level", lambda config: {}, integrator))
    return Policy.create(Integrator(), {})


def test_a_step_takes_the_state_and_returns_the_next_one(policy):
    state, total = policy.init_state(), np.full(ACTIONS, 0.5, np.float32)
    for row in EYE:
        shown = policy.inspect({"joints": row}, state)
        action, state = policy.step({"joints": row}, state)
        total = total + row
        np.testing.assert_allclose(action, np.tanh(policy.parameters * total), rtol=1e-5)
        np.testing.assert_array_equal(shown["action"], action)
    np.testing.assert_array_equal(state["total"], total)
    assert policy.has_state


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ((), "^state is no state of policy 'untrained': init_state returns the first one$"),
        ({"total": np.zeros(2, np.float32)}, r"^state total is float32\[2\]: it must be float32\[3\]$"),
        ({"total": np.full(3, np.nan, np.float32)}, "^state total holds a number that is not finite$"),
        ({"total": np.full(3, -np.inf, np.float32)}, "^state total holds a number that is not finite$"),
        ({"total": 1.0}, r"^state total is of type float: it must be float32\[3\]$"),
    ],
)
def test_a_state_of_another_policy_is_refused(policy, state, words):
    for method in (policy.step, policy.inspect):
        with pytest.raises(ValueError, match=words):
            method({"joints": EYE[0]}, state)


def test_an_observation_that_is_not_finite_is_refused(policy):
    for method in (policy.step, policy.inspect):
        with pytest.raises(ValueError, match=r"^joints holds a number that is not finite$"):
            method({"joints": np.full(3, np.nan, np.float32)}, policy.init_state())


def test_act_refuses_a_policy_with_a_state(policy):
    with pytest.raises(
        ValueError, match=r"^policy 'untrained' has a state: step takes it and returns the next"
    ):
        policy.act({"joints": EYE[0]})


def test_a_seed_draws_parameters_and_features_by_keys_of_their_own():
    config = default_iap("positive(m=3)", {"image": (4, 4)}, ("up",))
    policy, (start, draw) = Policy.create(config, {}, seed=7), jax.random.split(jax.random.key(7))
    np.testing.assert_array_equal(policy.parameters, flatten(policy.functions.init(start)))
    wanted, found = by_path(policy.functions.init_features(draw)), by_path(policy.features)
    for path, array in wanted.items():
        np.testing.assert_array_equal(found[path], array)


def test_a_policy_without_state_has_the_empty_one():
    policy = Policy.create(default_iap("none", {"joints": (ACTIONS,)}, ("up", "down")), {})
    assert not policy.has_state
    assert policy.init_state() == ()
    seen = {"joints": EYE[0]}
    action, state = policy.step(seen, ())
    assert state == ()
    np.testing.assert_array_equal(action, policy.act(seen))


def test_the_step_is_counted_with_its_state(policy):
    counted = count_step(policy.functions)
    assert counted.by_class["transcendental"] == ACTIONS
    assert counted.by_class["elementwise"] == 2 * ACTIONS  # a sum and a product
    # Weights, the constant of the features, observation and state, and then the sum, the product, the action.
    assert counted.peak_bytes == 4 * (4 + 3) * ACTIONS
    # Each operation reads its operands and writes its result.
    assert sum(counted.traffic_by_component.values()) == 4 * (3 + 3 + 2) * ACTIONS


@pytest.fixture(scope="module")
def walker():
    """A policy with a recurrent state, its environment, and observations."""
    env = Environment("stepping-stones", "mujoco", "front", 1.0)
    policy = new_policy(env, "all", encoder="gru")
    noise = np.random.default_rng(0).normal(size=policy.parameters.shape).astype(np.float32)
    with opened(env, None) as instance:
        first = instance.reset(seed=0)[0]
    nearer = {**first, "front_depth": 0.9 * first["front_depth"]}
    return replace(policy, parameters=noise), env, [first, nearer, first]


def test_every_episode_of_a_player_begins_with_the_first_state(walker):
    policy, _, seen = walker
    scores = [policy.inspect(seen[0], policy.init_state())["scores"]]
    playing = player(policy, "stepping-stones")
    first, second = playing.act_in(None, 0), playing.act_in(None, 1)
    for observation in seen:  # in turns
        np.testing.assert_array_equal(second.run(observation)["scores"], first.run(observation)["scores"])
    assert np.abs(first.run(seen[0])["scores"] - scores[0]).max() > 1e-3
    np.testing.assert_allclose(playing.act_in(None, 2).run(seen[0])["scores"], scores[0], atol=1e-4)


@pytest.mark.slow
def test_evaluations_films_and_recorded_heads_play_it(walker, tmp_path):
    policy, env, _ = walker
    results = [robopolicy.evaluate(policy, env, seeds=seeds, workers=2) for seeds in ((3, 4), (4,))]
    assert results[0].returns[1] == results[1].returns[0]
    robopolicy.film([policy], env, tmp_path / "walk.mp4", size=(320, 240))
    assert (tmp_path / "walk.mp4").stat().st_size > 0
    assert recorded_heads(policy, env, frames=2, seed=0) == []
