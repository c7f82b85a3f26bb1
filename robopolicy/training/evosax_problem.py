"""A task that is a JAX program, as a problem of evosax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from evosax.problems.problem import Problem, State
from jax import Array

from robopolicy.policies.policy import Policy
from robopolicy.training.strategies import with_finite
from robopolicy.training.worlds import Worlds, player


class WorldsProblem(Problem):
    """Episodes of a policy on courses of some seeds.

    The fitness is the negative mean return, since evosax minimises. All candidates of an evaluation play the
    same courses, which its key selects.
    """

    def __init__(self, worlds: Worlds, policy: Policy, seeds: Sequence[int], episodes: int = 1) -> None:
        """`episodes` are played by each candidate, each on one of the courses of `seeds`."""
        if not 1 <= episodes <= len(seeds):
            raise ValueError(
                f"episodes is {episodes}: it must be from 1 to {len(seeds)}, the number of seeds"
            )
        self._courses, self._size = worlds.courses(seeds), policy.parameters.size
        self._play = player(worlds, policy.flat_act, policy.init_state(), (), False)
        self._count, self._episodes = len(seeds), episodes

    @partial(jax.jit, static_argnames=("self",))
    def eval(self, key: Array, solutions: Array, state: State) -> tuple[Array, State, dict[str, Any]]:
        """The fitness [N] of `solutions` [N, P], and means [N] of the task's outcomes.

        A return that is not finite counts as the lowest finite one; `not_finite` [N] tells which are.
        """
        count = len(solutions)
        chosen = jnp.tile(jax.random.permutation(key, self._count)[: self._episodes], count)
        courses = jax.tree.map(lambda leaf: leaf[chosen], self._courses)
        played = self._play(jnp.repeat(solutions, self._episodes, axis=0), courses, jnp.zeros(0))
        means = {
            name: values.reshape(count, -1).mean(axis=1)
            for name, values in played.outcomes.items()
            if name != "cause"
        }
        returns = played.total.reshape(count, -1).mean(axis=1)
        means["not_finite"] = ~jnp.isfinite(returns)
        fitness = -with_finite(returns)
        return fitness, state.replace(counter=state.counter + 1), means

    @partial(jax.jit, static_argnames=("self",))
    def sample(self, key: Array) -> Array:
        """A point [P] of the search space."""
        return 0.1 * jax.random.normal(key, (self._size,))
