"""Products of float32 have all of its bits on every accelerator: by default, some round their factors."""

import jax
import jax.numpy as jnp
import pytest

from robopolicy.experiments.default_policies import vision_performer_config
from robopolicy.policies.base import KEY, PER_STEP, state_shape
from robopolicy.policies.catalogue import blank_policy
from robopolicy.policies.default_iap import default_iap
from robopolicy.training.strategies import COMPILED, strategy
from robopolicy.training.strategy import Settings

MECHANISM = "positive(m=4)"
CONFIGS = {
    "iap": default_iap(MECHANISM, {"depth": (8, 8), "joints": (3,)}, ["left", "right"], patch=2),
    "vision_performer": vision_performer_config(MECHANISM, {"view": (24, 24)}, {"pose": 3}, 2, patch=8),
}


def precise(function, *arguments):
    """The number of products in a program, all of which have the highest precision."""
    program = str(jax.make_jaxpr(function)(*arguments))
    count = program.count("dot_general[")
    assert program.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == count
    return count


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_policy_does_not_round_the_factors_of_its_products(kind):
    functions = blank_policy(CONFIGS[kind])
    features = jax.eval_shape(functions.init_features, KEY)
    state = state_shape(functions, features)
    arguments = jax.eval_shape(functions.init, KEY), features, functions.observation, state
    counts = {name: precise(getattr(functions, name), *arguments) for name in PER_STEP}
    assert counts["act"] > 0


@pytest.mark.slow
def test_a_strategy_does_not_round_the_factors_of_its_products():
    products, key = 0, jax.random.key(0)
    for name in COMPILED:
        search = strategy(name, Settings(population=4, sigma=0.1, learning_rate=0.1))
        state = search.init(key, jnp.zeros(3))
        population, state = search.ask(key, state)
        products += precise(search.tell, key, population, jnp.arange(4.0), state)
    assert products > 0
