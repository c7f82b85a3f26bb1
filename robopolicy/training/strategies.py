"""Evolution strategies behind one seam, from evosax and EvoJAX.

A strategy here maximises, keeps all of its state in a pytree of arrays that is handed in and out, and draws
only from the keys that it is given (EvoJAX's from one that is part of its state).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from evosax import algorithms
from jax import Array

State = Any


class Strategy(NamedTuple):
    """An evolution strategy as pure functions.

    Attributes:
      init: (key, mean [P]) -> state.
      ask: (key, state) -> (population [N, P], state).
      tell: (key, population [N, P], returns [N], state) -> state; larger returns are better, all finite.
      mean: state -> [P], the centre of the search, which is what a run delivers.
    """

    init: Callable[[Array, Array], State]
    ask: Callable[[Array, State], tuple[Array, State]]
    tell: Callable[[Array, Array, Array, State], State]
    mean: Callable[[State], Array]


class Settings(NamedTuple):
    """What every strategy is made from.

    population: candidates a generation. sigma: standard deviation of a candidate around the mean, at first.
    learning_rate: Adam's, for the strategies that follow a gradient.
    """

    population: int
    sigma: float
    learning_rate: float


def _evosax(make: Callable[[Settings, Array], Any], settings: Settings) -> Strategy:
    """evosax minimises, and its objects hold no state but the shape of a solution."""
    made: dict[int, Any] = {}

    def algorithm(size: int) -> tuple[Any, Any]:
        if size not in made:
            made[size] = make(settings, jnp.zeros(size))
        params = made[size].default_params
        if hasattr(params, "std_init"):
            params = params.replace(std_init=settings.sigma)
        return made[size], params

    def init(key: Array, mean: Array) -> State:
        es, params = algorithm(mean.size)
        return es.init(key, mean, params)

    def ask(key: Array, state: State) -> tuple[Array, State]:
        es, params = algorithm(state.mean.size)
        population, state = es.ask(key, state, params)
        return population, state

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        es, params = algorithm(state.mean.size)
        state, _ = es.tell(key, population, -returns, state, params)
        return state

    return Strategy(init, ask, tell, lambda state: state.mean)


def _open_es(settings: Settings, solution: Array) -> Any:
    return algorithms.Open_ES(
        settings.population,
        solution,
        optimizer=optax.adam(settings.learning_rate),
        std_schedule=optax.constant_schedule(settings.sigma),
    )


def _pgpe(settings: Settings, solution: Array) -> Any:
    return algorithms.PGPE(settings.population, solution, optimizer=optax.adam(settings.learning_rate))


def _evojax(
    make: Callable[[Settings, Array, int], Any],
    kept: tuple[str, ...],
    passing: tuple[str, ...],
    settings: Settings,
) -> Strategy:
    """EvoJAX's objects keep their state in attributes: `kept` always, `passing` from ask to tell.

    They are set before every call and read after it, so that the object itself carries nothing.
    """
    made: dict[int, Any] = {}

    def read(algorithm: Any, names: tuple[str, ...]) -> State:
        return {name: jax.tree.map(jnp.asarray, getattr(algorithm, name)) for name in names}

    def write(algorithm: Any, state: State) -> None:
        for name, value in state.items():
            setattr(algorithm, name, value)

    def init(key: Array, mean: Array) -> State:
        # The seed only starts the key that is part of the state.
        algorithm = make(settings, mean, int(jax.random.randint(key, (), 0, 2**31 - 1)))
        made[mean.size] = algorithm
        return read(algorithm, kept)

    def known(size: int) -> Any:
        if size not in made:
            made[size] = make(settings, jnp.zeros(size), 0)
        return made[size]

    def size_of(state: State) -> int:
        return int(mean(state).size)

    def ask(key: Array, state: State) -> tuple[Array, State]:
        algorithm = known(size_of(state))
        write(algorithm, state)
        population = jnp.asarray(algorithm.ask())
        return population, read(algorithm, kept + passing)

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        algorithm = known(size_of(state))
        write(algorithm, state)
        algorithm.tell(returns)
        return read(algorithm, kept)

    def mean(state: State) -> Array:
        return jnp.asarray(state["_center"] if "_center" in state else state["state"].mean)

    return Strategy(init, ask, tell, mean)


def _evojax_pgpe(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import PGPE

    return PGPE(
        pop_size=settings.population,
        param_size=mean.size,
        init_params=mean,
        optimizer="adam",
        center_learning_rate=settings.learning_rate,
        init_stdev=float(settings.sigma),
        seed=seed,
    )


def _evojax_cma_es(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import CMA_ES_JAX

    return CMA_ES_JAX(
        param_size=mean.size,
        pop_size=settings.population,
        mean=mean,
        init_stdev=float(settings.sigma),
        seed=seed,
    )


def _plain(name: str) -> Callable[[Settings], Strategy]:
    def make(settings: Settings, solution: Array) -> Any:
        return getattr(algorithms, name)(settings.population, solution)

    return lambda settings: _evosax(make, settings)


STRATEGIES: dict[str, Callable[[Settings], Strategy]] = {
    "open_es": lambda settings: _evosax(_open_es, settings),
    "pgpe": lambda settings: _evosax(_pgpe, settings),
    "snes": _plain("SNES"),
    "sep_cma_es": _plain("Sep_CMA_ES"),
    "cma_es": _plain("CMA_ES"),
    "evojax_pgpe": lambda settings: _evojax(
        _evojax_pgpe, ("_t", "_center", "_stdev", "_opt_state", "_key"), ("_scaled_noises",), settings
    ),
    "evojax_cma_es": lambda settings: _evojax(_evojax_cma_es, ("state",), ("_latest_solutions",), settings),
}
ANTITHETIC = ("open_es", "pgpe", "evojax_pgpe")


def strategy(name: str, settings: Settings) -> Strategy:
    """The strategy called `name`. Raises ValueError for an unknown name or settings that it cannot take."""
    if name not in STRATEGIES:
        near = difflib.get_close_matches(name, STRATEGIES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"strategy is {name!r}: it must be one of {', '.join(STRATEGIES)}{hint}")
    if settings.population < 2:
        raise ValueError(f"population is {settings.population}: it must be 2 or more")
    if name in ANTITHETIC and settings.population % 2:
        raise ValueError(f"population is {settings.population}: {name} draws in pairs, so it must be even")
    for field in ("sigma", "learning_rate"):
        value = getattr(settings, field)
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{field} is {value}: it must be a number above 0")
    return STRATEGIES[name](settings)


def sanitised(returns: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns [N] with every one that is not finite put to the worst of the rest, and how many those were.

    Strategies rank NaN as they like, some of them best. Raises FloatingPointError where none is finite.
    """
    finite = np.isfinite(returns)
    if not finite.any():
        raise FloatingPointError("no candidate of this generation has a finite return")
    return np.where(finite, returns, returns[finite].min()), int((~finite).sum())
