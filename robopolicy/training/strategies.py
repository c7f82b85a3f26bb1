"""The catalogue of evolution strategies, from evosax, EvoJAX and the robotics literature, and their shaping.

Every strategy here maximises, keeps all of its state in a pytree of arrays that functions take and return,
and draws only from the keys that it receives (those of EvoJAX from a key that is part of the state).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from evosax.core import fitness_shaping
from jax import Array
from numpy.typing import ArrayLike, NDArray

from robopolicy.naming import one_of
from robopolicy.policies.base import exact
from robopolicy.settings import check_number
from robopolicy.training import evojax_strategies as evojax
from robopolicy.training import evosax_strategies as evosax
from robopolicy.training.robotics_ars import robotics_ars
from robopolicy.training.strategy import Settings, State, Strategy

SMALLEST, LARGEST = 1e-9, 1e6  # far beyond any use, and far from what float32 cannot hold


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
        is_tied = jnp.all(charged == charged[0])
        told = inner.tell(key, population, shape(charged), state)
        # What passes from ask to tell alone is no part of the state; in `told` it is missing or None.
        before = {name: state[name] for name in told} if isinstance(told, dict) else state

        def kept(new: Array | None, old: Array) -> Array | None:
            if new is None:
                return None
            if isinstance(is_tied, jax.core.Tracer):
                return jnp.where(is_tied, old, new)
            return old if is_tied else new

        return jax.tree.map(kept, told, before, is_leaf=lambda leaf: leaf is None)

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


class Entry(NamedTuple):
    """A strategy of the catalogue.

    Attributes:
      make: settings -> strategy.
      antithetic: whether it draws in pairs.
      shaping: its default, a name in `SHAPINGS`.
      by_rank: whether it adapts to ranks alone, which need ties broken at random.
      compiles: whether JAX can compile it together with the episodes.
      smallest: its smallest population.
    """

    make: Callable[[Settings], Strategy]
    antithetic: bool
    shaping: str
    by_rank: bool = False
    compiles: bool = True
    smallest: int = 2


STRATEGIES: dict[str, Entry] = {
    "open_es": Entry(partial(evosax.wrap, evosax.open_es), True, "ranks"),
    "pgpe": Entry(partial(evosax.wrap, evosax.pgpe), True, "ranks"),
    "ars": Entry(partial(evosax.wrap, evosax.ars), True, "raw"),
    "snes": Entry(partial(evosax.wrap, evosax.plain("SNES")), False, "raw", by_rank=True),
    "xnes": Entry(partial(evosax.wrap, evosax.plain("xNES")), False, "raw", by_rank=True),
    "sep_cma_es": Entry(partial(evosax.wrap, evosax.plain("Sep_CMA_ES")), False, "raw", by_rank=True),
    "cma_es": Entry(partial(evosax.wrap, evosax.plain("CMA_ES")), False, "raw", by_rank=True),
    "evojax_pgpe": Entry(partial(evojax.wrap, evojax.PGPE), True, "ranks", smallest=4),
    "evojax_cma_es": Entry(partial(evojax.wrap, evojax.CMA_ES), False, "raw", by_rank=True, compiles=False),
    "evojax_crfmnes": Entry(partial(evojax.wrap, evojax.CRFMNES), True, "raw", by_rank=True, compiles=False),
    "evojax_ars": Entry(partial(evojax.wrap, evojax.ARS), True, "raw"),
    "robotics_ars": Entry(robotics_ars, True, "raw"),
}


COMPILED = tuple(name for name, entry in STRATEGIES.items() if entry.compiles)


@lru_cache(maxsize=32)  # so that two runs of one process compile it once
def strategy(name: str, settings: Settings) -> Strategy:
    """The strategy `name`. Raises ValueError for an unknown name, or for settings out of range."""
    entry = STRATEGIES[one_of("strategy", name, STRATEGIES)]
    one_of("shaping", settings.shaping, ("default", *SHAPINGS))
    if settings.population < entry.smallest:
        needed = f"it must be {entry.smallest} or more"
        raise ValueError(f"population is {settings.population}: {needed} for {name}")
    if entry.antithetic and settings.population % 2:
        raise ValueError(f"population is {settings.population}: {name} draws in pairs, so it must be even")
    for field, highest in (("sigma", LARGEST), ("learning_rate", LARGEST), ("decay", 1.0), ("elite", 1.0)):
        check_number(field, getattr(settings, field), SMALLEST, highest)
    check_number("weight_decay", settings.weight_decay, 0.0, LARGEST)
    inner = entry.make(settings)
    shaping = entry.shaping if settings.shaping == "default" else settings.shaping
    made = shaped(untied(inner) if entry.by_rank else inner, shaping, settings.weight_decay)
    return made._replace(ask=exact(made.ask), tell=exact(made.tell))


def sanitised(returns: NDArray[np.float64]) -> tuple[NDArray[np.float64], int]:
    """Returns [N] with the lowest finite one in place of each that is not finite, and how many those are.

    Strategies rank NaN arbitrarily, some of them as the best. Raises FloatingPointError if none is finite.
    """
    finite = np.isfinite(returns)
    if not finite.any():
        raise FloatingPointError("no candidate of this generation has a finite return")
    return np.where(finite, returns, returns[finite].min()), int((~finite).sum())


def with_finite(returns: Array) -> Array:
    """`sanitised` returns [N] inside of a compiled program; all of them infinite if none is finite."""
    finite = jnp.isfinite(returns)
    return jnp.where(finite, returns, jnp.min(returns, where=finite, initial=jnp.inf))


def exploration(population: ArrayLike, centre: ArrayLike, returns: NDArray[np.floating]) -> dict[str, float]:
    """The spread of a generation's candidates [N, P] and the slope of their `returns` [N].

    `centre` [P] is the search's mean when it drew the candidates. Returns `sigma`, the standard deviation of
    a parameter from the centre, and `gradient_norm`, the norm of mean((return - mean return) (candidate -
    centre)) / sigma^2, an estimate of the return's gradient (Salimans et al., 2017, Section 2). Both are zero
    if all candidates are equal.
    """
    offsets = np.asarray(population, np.float64) - np.asarray(centre, np.float64)
    variance = float(np.mean(np.square(offsets)))
    if variance == 0.0:
        return {"sigma": 0.0, "gradient_norm": 0.0}
    values = np.asarray(returns, np.float64)
    slope = (values - values.mean()) @ offsets / (len(offsets) * variance)
    return {"sigma": float(np.sqrt(variance)), "gradient_norm": float(np.linalg.norm(slope))}
