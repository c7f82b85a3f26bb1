"""Strategies of EvoJAX, which maximise and keep their state in attributes of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.training.strategy import Settings, State, Strategy


class Kind(NamedTuple):
    """An algorithm of EvoJAX.

    Attributes:
      make: (module `evojax.algo`, settings, mean [P], further arguments by name) -> algorithm.
      state: names of the attributes that are its state, which `tell` or later calls read.
      passing: names of the attributes that pass from ask to tell only.
      centre: state -> mean [P].
      holder: algorithm -> the object that has these attributes.
    """

    make: Callable[..., Any]
    state: tuple[str, ...]
    passing: tuple[str, ...]
    centre: Callable[[State], Array]
    holder: Callable[[Any], Any] = lambda algorithm: algorithm


def wrap(kind: Kind, settings: Settings) -> Strategy:
    """The algorithm with its state outside: written before every call and read after it.

    It draws from a key of its own, which is part of the state.
    """
    algorithms: dict[int, Any] = {}

    def make(mean: Array, seed: int) -> Any:
        from evojax import algo

        common = {"pop_size": settings.population, "param_size": mean.size, "seed": seed}
        return kind.make(algo, settings, mean, init_stdev=float(settings.sigma), **common)

    def read(algorithm: Any, names: tuple[str, ...]) -> State:
        holder = kind.holder(algorithm)
        return {name: jax.tree.map(jnp.asarray, getattr(holder, name)) for name in names}

    def write(state: State) -> Any:
        size = kind.centre(state).size
        if size not in algorithms:
            algorithms[size] = make(jnp.zeros(size), 0)
        for name, value in state.items():
            setattr(kind.holder(algorithms[size]), name, value)
        return algorithms[size]

    def init(key: Array, mean: Array) -> State:
        # The seed only initialises the key that is part of the state.
        algorithms[mean.size] = make(mean, int(jax.random.randint(key, (), 0, 2**31 - 1)))
        return read(algorithms[mean.size], kind.state)

    def ask(key: Array, state: State) -> tuple[Array, State]:
        algorithm = write(state)
        population = jnp.asarray(algorithm.ask())
        return population, read(algorithm, kind.state + kind.passing)

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        algorithm = write(state)
        algorithm.tell(returns)
        return read(algorithm, kind.state)

    return Strategy(init, ask, tell, kind.centre)


def _pgpe(algo: Any, settings: Settings, mean: Array, **common: Any) -> Any:
    return algo.PGPE(
        init_params=mean,
        optimizer="adam",
        optimizer_config={"center_lr_decay_coef": settings.decay, "center_lr_decay_steps": 1},
        center_learning_rate=settings.learning_rate,
        solution_ranking=False,
        **common,
    )


def _ars(algo: Any, settings: Settings, mean: Array, **common: Any) -> Any:
    from evojax.algo.ars_native import get_optim

    schedule = {"lrate_init": settings.learning_rate, "decay_coef": settings.decay}
    algorithm = algo.ARS_native(
        # It sorts for minimising but maximises, so a share of the directions would be the worst ones.
        elite_ratio=1.0,
        decay_stdev=settings.decay,
        limit_stdev=0.0,
        optimizer="adam",
        optimizer_config=schedule,
        **common,
    )
    # It has no argument for a starting point and begins at zero.
    algorithm.mean_params = mean
    algorithm.opt_state, algorithm.opt_update, algorithm.opt_get_params = get_optim("adam", schedule, mean)
    return algorithm


PGPE = Kind(
    _pgpe,
    ("_t", "_center", "_stdev", "_opt_state", "_key"),
    ("_scaled_noises",),
    lambda state: jnp.asarray(state["_center"]),
)
CMA_ES = Kind(
    lambda algo, settings, mean, **common: algo.CMA_ES_JAX(mean=mean, **common),
    ("state",),
    ("_latest_solutions",),
    lambda state: jnp.asarray(state["state"].mean),
)
CRFMNES = Kind(
    lambda algo, settings, mean, **common: algo.CRFMNES(init_params=mean, **common),
    ("m", "v", "D", "sigma", "pc", "ps", "z", "rng", "f_best", "x_best", "g", "no_of_evals"),
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
