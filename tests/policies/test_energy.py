"""Heads on scores that are known: the losses that they learn by, and the actions that they choose."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from robopolicy.policies.energy import HEADS, HeadConfig

ENCODING, ACTION, KEY = jnp.ones(4), jnp.array([0.5, -0.5, 1.0]), jax.random.key(0)
CONFIG = HeadConfig(encoding=4, actions=3, hidden=5, samples=64, iterations=6)


class Slope:
    """In place of a network: the score rises with the first number of an action, by `slope`."""

    def __init__(self, slope):
        self._slope = jnp.array([slope, 0.0, 0.0])

    def __call__(self, encoding, candidates):
        return candidates @ self._slope

    def slope(self, encoding, candidates):
        return jnp.broadcast_to(self._slope, candidates.shape)


@pytest.mark.rest_slow
@pytest.mark.parametrize("name", sorted(HEADS, key="derivative_free".__ne__))
def test_the_loss_of_equal_scores_is_that_of_chance(name):
    head = HEADS[name](CONFIG)
    network = head.network(nnx.Rngs(0))
    nnx.update(network, jax.tree.map(jnp.zeros_like, nnx.state(network, nnx.Param)))
    # The demonstrated action among eight, for an autoregressive head once a number; of a regression to zero
    # the mean square.
    expected = {"autoregressive": 3 * np.log(8), "squared_error": 0.5}.get(name, np.log(8))
    assert float(head.loss(network, ENCODING, ACTION, KEY, 7)) == pytest.approx(expected, rel=1e-6)


def test_langevin_pays_for_slopes_above_one_squared():
    head, best = HEADS["langevin"](CONFIG), jnp.ones(3)
    gentle, steep = (float(head.loss(Slope(slope), ENCODING, best, KEY, 7)) for slope in (1, 3))
    assert 0 < gentle < np.log(8)
    assert 4 < steep < 4 + np.log(8)


def test_a_langevin_step_goes_up_by_half_a_slope_and_a_tenth_at_most():
    head = HEADS["langevin"](CONFIG)
    draws = {"start": jnp.zeros((2, 3)), "normal": jnp.zeros((1, 2, 3))}
    for slope, moved in ((0.4, 0.1 * 0.5 * 0.4), (40.0, 0.1)):
        action, score = head.choose(Slope(slope), draws, ENCODING)
        np.testing.assert_allclose(action, [moved, 0.0, 0.0], rtol=1e-6)
        np.testing.assert_allclose(score, [slope * moved], rtol=1e-6)


def test_a_search_by_sampling_narrows_down():
    head = HEADS["derivative_free"](CONFIG)

    def score(encoding, candidates):
        return -50.0 * jnp.sum((candidates - 0.8 * ACTION) ** 2, axis=1)

    action, _ = head.choose(score, head.draw(KEY), ENCODING)
    assert np.abs(action - 0.8 * ACTION).max() < 0.05
