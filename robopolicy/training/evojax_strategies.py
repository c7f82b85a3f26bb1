"""Strategies of EvoJAX, which maximises and keeps its state in attributes of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.training.strategy import Settings, State, Strategy


class Kind(NamedTuple):
    """One of EvoJAX's algorithms, and where it keeps what.

    Attributes:
      make: (settings, mean [P], seed) -> algorithm.
      kept: names of the attributes that make up its state, all of them read in `tell` or later.
      passing: those that pass from ask to tell only.
      centre: state -> mean [P].
      holder: algorithm -> the object that has these attributes.
    """

    make: Callable[[Settings, Array, int], Any]
    kept: tuple[str, ...]
    passing: tuple[str, ...]
    centre: Callable[[State], Array]
    holder: Callable[[Any], Any] = lambda algorithm: algorithm


def wrap(kind: Kind, settings: Settings) -> Strategy:
    """The algorithm with its state outside: set before every call and read after it.

    Its draws come from a key of its own, which is part of the state.
    """
    made: dict[int, Any] = {}

    def read(algorithm: Any, names: tuple[str, ...]) -> State:
        holder = kind.holder(algorithm)
        return {name: jax.tree.map(jnp.asarray, getattr(holder, name)) for name in names}

    def write(state: State) -> Any:
        size = kind.centre(state).size
        if size not in made:
            made[size] = kind.make(settings, jnp.zeros(size), 0)
        for name, value in state.items():
            setattr(kind.holder(made[size]), name, value)
        return made[size]

    def init(key: Array, mean: Array) -> State:
        # The seed only starts the key that is part of the state.
        made[mean.size] = kind.make(settings, mean, int(jax.random.randint(key, (), 0, 2**31 - 1)))
        return read(made[mean.size], kind.kept)

    def ask(key: Array, state: State) -> tuple[Array, State]:
        algorithm = write(state)
        population = jnp.asarray(algorithm.ask())
        return population, read(algorithm, kind.kept + kind.passing)

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        algorithm = write(state)
        algorithm.tell(returns)
        return read(algorithm, kind.kept)

    return Strategy(init, ask, tell, kind.centre)


def _pgpe(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import PGPE

    return PGPE(
        pop_size=settings.population,
        param_size=mean.size,
        init_params=mean,
        optimizer="adam",
        optimizer_config={"center_lr_decay_coef": settings.decay, "center_lr_decay_steps": 1},
        center_learning_rate=settings.learning_rate,
        init_stdev=float(settings.sigma),
        solution_ranking=False,
        seed=seed,
    )


def _cma_es(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import CMA_ES_JAX

    return CMA_ES_JAX(
        param_size=mean.size,
        pop_size=settings.population,
        mean=mean,
        init_stdev=float(settings.sigma),
        seed=seed,
    )


def _crfmnes(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import CRFMNES

    return CRFMNES(
        param_size=mean.size,
        pop_size=settings.population,
        init_params=mean,
        init_stdev=float(settings.sigma),
        seed=seed,
    )


def _ars(settings: Settings, mean: Array, seed: int) -> Any:
    from evojax.algo import ARS_native
    from evojax.algo.ars_native import get_optim

    schedule = {"lrate_init": settings.learning_rate, "decay_coef": settings.decay}
    made = ARS_native(
        param_size=mean.size,
        pop_size=settings.population,
        # It sorts for minimising while it maximises, so that a share of the directions would be the worst.
        elite_ratio=1.0,
        decay_stdev=settings.decay,
        limit_stdev=0.0,
        init_stdev=settings.sigma,
        seed=seed,
        optimizer="adam",
        optimizer_config=schedule,
    )
    # It takes no starting point and begins at zero.
    made.mean_params = mean
    made.opt_state, made.opt_update, made.opt_get_params = get_optim("adam", schedule, mean)
    return made


CRFM = ("m", "v", "D", "sigma", "pc", "ps", "z", "rng", "f_best", "x_best", "g", "no_of_evals")

PGPE = Kind(
    _pgpe,
    ("_t", "_center", "_stdev", "_opt_state", "_key"),
    ("_scaled_noises",),
    lambda state: jnp.asarray(state["_center"]),
)
CMA_ES = Kind(_cma_es, ("state",), ("_latest_solutions",), lambda state: jnp.asarray(state["state"].mean))
CRFMNES = Kind(
    _crfmnes,
    CRFM,
    ("x", "y", "vbar", "normv", "normv2"),
    lambda state: jnp.asarray(state["m"])[:, 0],
    lambda algorithm: algorithm.crfm,
)
ARS = Kind(
    _ars,
    ("_t", "mean_params", "stdev", "opt_state", "rand_key"),
    ("noise",),
    lambda state: jnp.asarray(state["mean_params"]),
)
