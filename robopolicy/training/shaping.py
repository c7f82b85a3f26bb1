"""Fitness shaping: what strategies learn from in place of returns, and the price of large weights."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from evosax.core import fitness_shaping
from jax import Array
from numpy.typing import NDArray

from robopolicy.training.strategy import State, Strategy


def _from_evosax(name: str) -> Callable[[Array], Array]:
    """A function of evosax; its population, state and settings are arguments that it ignores."""
    shape = getattr(fitness_shaping, f"{name}_fitness_shaping_fn")
    return lambda returns: shape(None, returns, None, None)


SHAPINGS: dict[str, Callable[[Array], Array]] = {
    "raw": _from_evosax("identity"),
    "ranks": _from_evosax("centered_rank"),
    "standardized": _from_evosax("standardize"),
    "normalized": _from_evosax("normalize"),
}


def shaped(inner: Strategy, shaping: str, weight_decay: float) -> Strategy:
    """`inner` with shaped returns [N], less the price of weights; larger is better before and after.

    Equal returns hold no information, so they leave the state unchanged.
    """
    shape = SHAPINGS[shaping]

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        charged = returns - weight_decay * jnp.mean(jnp.square(population), axis=1)
        if bool(jnp.all(charged == charged[0])):
            return state
        return inner.tell(key, population, shape(charged), state)

    return inner._replace(tell=tell)


def untied(inner: Strategy) -> Strategy:
    """`inner`, which uses ranks alone, with ranks [N] whose ties are broken at random.

    For ties, libraries use weights that do not add up, or prefer the candidates drawn first.
    """

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        key, ties = jax.random.split(key)
        order = jnp.lexsort((jax.random.uniform(ties, returns.shape), returns))
        ranks = jnp.zeros_like(returns).at[order].set(jnp.arange(returns.size, dtype=returns.dtype))
        return inner.tell(key, population, ranks, state)

    return inner._replace(tell=tell)


def sanitised(returns: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Returns [N] with the lowest finite one in place of each that is not finite, and how many those are.

    Strategies rank NaN arbitrarily, some of them as the best. Raises FloatingPointError if none is finite.
    """
    finite = np.isfinite(returns)
    if not finite.any():
        raise FloatingPointError("no candidate of this generation has a finite return")
    return np.where(finite, returns, returns[finite].min()), int((~finite).sum())
