"""Environments as JAX programs: what they offer, and how a policy plays them in lock step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from robopolicy.training.rollout import Episode, Moments


class Worlds(Protocol):
    """Many environments of a task as pure functions of arrays. `N` of them advance in lock step.

    causes: why an episode ended, by number. actions: numbers of an action. last: steps of the longest
    episode.
    """

    causes: tuple[str, ...]
    actions: int
    last: int

    def courses(self, seeds: Sequence[int]) -> Any:
        """What the seeds decide: a pytree of arrays with a leading axis of their number."""

    def reset(self, courses: Any) -> tuple[Any, dict[str, Array]]:
        """The first state, and the observation."""

    def step(self, courses: Any, state: Any, actions: Array) -> tuple[Any, dict[str, Array], Array, Array]:
        """State, observation, rewards [N] and whether each episode has ended [N], after `actions` [N, A]."""

    def outcomes(self, state: Any) -> dict[str, Array]:
        """The results of the episodes, [N] each: the task's outcomes, `success`, and the number `cause`."""


class Played(NamedTuple):
    """Episodes: return, steps, results by name, and sums and squares [K] of watched observations by name.

    Arrays of JAX in a program, and of NumPy after it.
    """

    total: Any
    steps: Any
    outcomes: dict[str, Any]
    sums: dict[str, Any]
    squares: dict[str, Any]


def player(
    worlds: Worlds, act: Callable[..., Array], watched: tuple[str, ...], normalises: bool
) -> Callable[..., Played]:
    """(parameters [B, P], courses, normaliser) -> B episodes, which end when the last one does."""

    def play(parameters: Array, courses: Any, normaliser: Array) -> Played:
        extra = (normaliser,) if normalises else ()

        def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            state, seen, is_over, played = carry
            actions = jax.vmap(lambda p, o: act(p, o, *extra))(parameters, seen)
            runs = ~is_over
            watching = {name: jnp.where(runs[:, None], seen[name], 0.0) for name in watched}
            state, seen, rewards, is_over = worlds.step(courses, state, actions)
            played = played._replace(
                total=played.total + jnp.where(runs, rewards, 0.0),
                steps=played.steps + runs,
                sums={name: played.sums[name] + rows for name, rows in watching.items()},
                squares={name: played.squares[name] + rows**2 for name, rows in watching.items()},
            )
            return state, seen, is_over, played

        state, seen = worlds.reset(courses)
        count = len(parameters)
        zeros = {name: jnp.zeros_like(seen[name]) for name in watched}
        begun = Played(jnp.zeros(count), jnp.zeros(count, jnp.int32), {}, zeros, dict(zeros))
        carry = state, seen, jnp.zeros(count, bool), begun
        state, _, _, played = lax.while_loop(lambda parts: ~parts[2].all(), advance, carry)
        return played._replace(outcomes=worlds.outcomes(state))

    return play


def episodes_of(played: Played, causes: Sequence[str], seconds: float) -> list[Episode]:
    """The episodes of `played`, in arrays of NumPy, which took `seconds` together."""
    episodes = []
    for index, steps in enumerate(played.steps.tolist()):
        info: dict[str, Any] = {name: column[index].item() for name, column in played.outcomes.items()}
        info["cause"] = causes[info["cause"]]
        moments = {
            name: Moments(steps, sums[index].astype(float), played.squares[name][index].astype(float))
            for name, sums in played.sums.items()
        }
        each = seconds / len(played.steps)
        episodes.append(Episode(float(played.total[index]), steps, info, each, moments))
    return episodes
