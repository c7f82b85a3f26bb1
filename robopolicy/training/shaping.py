"""What strategies learn from in place of returns: fitness shaping, and the price of large weights."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from evosax.core import fitness_shaping
from jax import Array
from numpy.typing import NDArray

from robopolicy.training.strategy import State, Strategy


def _from_evosax(shape: Callable[..., Array]) -> Callable[[Array], Array]:
    """evosax's functions take a population, a state and settings besides, which these do not look at."""
    return lambda returns: shape(None, returns, None, None)


SHAPINGS: dict[str, Callable[[Array], Array]] = {
    "raw": _from_evosax(fitness_shaping.identity_fitness_shaping_fn),
    "ranks": _from_evosax(fitness_shaping.centered_rank_fitness_shaping_fn),
    "standardized": _from_evosax(fitness_shaping.standardize_fitness_shaping_fn),
    "normalized": _from_evosax(fitness_shaping.normalize_fitness_shaping_fn),
}


def shaped(inner: Strategy, shaping: str, weight_decay: float) -> Strategy:
    """`inner`, given shaped returns [N], less the price of weights; larger is better before and after.

    Where all are equal there is nothing to learn, and its state stays as it is.
    """
    shape = SHAPINGS[shaping]

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        price = weight_decay * jnp.mean(jnp.square(population), axis=1)
        charged = returns - price
        if bool(jnp.all(charged == charged[0])):
            return state
        return inner.tell(key, population, shape(charged), state)

    return inner._replace(tell=tell)


def untied(inner: Strategy) -> Strategy:
    """`inner`, which goes by ranks alone, given ranks [N] with ties broken at random.

    Libraries give equal returns weights that do not add up, or favour those that were drawn first.
    """

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        key, ties = jax.random.split(key)
        order = jnp.lexsort((jax.random.uniform(ties, returns.shape), returns))
        ranks = jnp.zeros_like(returns).at[order].set(jnp.arange(returns.size, dtype=returns.dtype))
        return inner.tell(key, population, ranks, state)

    return inner._replace(tell=tell)


def sanitised(returns: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Returns [N] with every one that is not finite put to the worst of the rest, and how many those were.

    Strategies rank NaN as they like, some of them best. Raises FloatingPointError where none is finite.
    """
    finite = np.isfinite(returns)
    if not finite.any():
        raise FloatingPointError("no candidate of this generation has a finite return")
    return np.where(finite, returns, returns[finite].min()), int((~finite).sum())
