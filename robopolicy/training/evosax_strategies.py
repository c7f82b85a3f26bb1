"""Strategies of evosax, which minimise and return all of their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax
from evosax import algorithms
from evosax.core.fitness_shaping import identity_fitness_shaping_fn
from jax import Array

from robopolicy.training.strategy import Settings, State, Strategy

Make = Callable[[Settings, Array], Any]


def wrap(make: Make, settings: Settings) -> Strategy:
    """The algorithm that `make` builds from settings and a solution [P]."""
    cache: dict[int, Any] = {}

    def algorithm(size: int) -> tuple[Any, Any]:
        if size not in cache:
            cache[size] = make(settings, jnp.zeros(size))
        params = cache[size].default_params
        if hasattr(params, "std_init"):
            params = params.replace(std_init=settings.sigma)
        return cache[size], params

    def init(key: Array, mean: Array) -> State:
        es, params = algorithm(mean.size)
        state = es.init(key, mean, params)
        # xNES scales its directions by B, and B by sigma: at first sigma would count twice.
        return state.replace(B=jnp.eye(mean.size)) if type(es) is algorithms.xNES else state

    def ask(key: Array, state: State) -> tuple[Array, State]:
        es, params = algorithm(state.mean.size)
        population, state = es.ask(key, state, params)
        return population, state

    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        es, params = algorithm(state.mean.size)
        state, _ = es.tell(key, population, -returns, state, params)
        # With a schedule, evosax has set sigma to that of the generation that ends here.
        is_scheduled = hasattr(es, "std_schedule")
        return state.replace(std=settings.sigma_at(state.generation_counter)) if is_scheduled else state

    return Strategy(init, ask, tell, lambda state: state.mean)


def open_es(settings: Settings, solution: Array) -> Any:
    """OpenAI-ES (Salimans et al., 2017) with Adam."""
    return algorithms.Open_ES(
        settings.population,
        solution,
        optimizer=optax.adam(settings.learning_rate_at),
        std_schedule=settings.sigma_at,
        fitness_shaping_fn=identity_fitness_shaping_fn,
    )


def ars(settings: Settings, solution: Array) -> Any:
    """Augmented Random Search (Mania et al., 2018), with Adam."""
    optimizer = optax.adam(settings.learning_rate_at)
    algorithm = algorithms.ARS(
        settings.population, solution, optimizer=optimizer, std_schedule=settings.sigma_at
    )
    algorithm.elite_ratio = settings.elite
    return algorithm


def pgpe(settings: Settings, solution: Array) -> Any:
    """Policy gradients with parameter-based exploration (Sehnke et al., 2010), with Adam."""
    return algorithms.PGPE(
        settings.population,
        solution,
        optimizer=optax.adam(settings.learning_rate_at),
        fitness_shaping_fn=identity_fitness_shaping_fn,
    )


def plain(name: str) -> Make:
    """An algorithm that adapts all its settings by itself, from ranks alone."""
    return lambda settings, solution: getattr(algorithms, name)(settings.population, solution)
