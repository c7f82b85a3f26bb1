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
    worlds: Worlds,
    act: Callable[..., tuple[Array, Any]],
    first_state: Any,
    watched: tuple[str, ...],
    normalises: bool,
) -> Callable[..., Played]:
    """(parameters [B, P], courses, normaliser) -> B episodes, which end when the last one does.

    Args:
      worlds: the environment.
      act: pure function (parameters [P], observation, state) -> action [A], next state; if it `normalises`,
        it takes a normaliser [2K], too.
      first_state: the state in which every episode begins, a pytree of arrays.
      watched: vector observations whose sums and squares are part of the episodes.
      normalises: whether `act` takes a normaliser.
    """

    def play(parameters: Array, courses: Any, normaliser: Array) -> Played:
        extra = (normaliser,) if normalises else ()

        def advance(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            world, state, seen, is_over, played = carry
            actions, state = jax.vmap(lambda p, o, s: act(p, o, s, *extra))(parameters, seen, state)
            runs = ~is_over
            watching = {name: jnp.where(runs[:, None], seen[name], 0.0) for name in watched}
            world, seen, rewards, is_over = worlds.step(courses, world, actions)
            played = played._replace(
                total=played.total + jnp.where(runs, rewards, 0.0),
                steps=played.steps + runs,
                sums={name: played.sums[name] + rows for name, rows in watching.items()},
                squares={name: played.squares[name] + rows**2 for name, rows in watching.items()},
            )
            return world, state, seen, is_over, played

        world, seen = worlds.reset(courses)
        count = len(parameters)
        state = repeated(first_state, count)
        zeros = {name: jnp.zeros_like(seen[name]) for name in watched}
        begun = Played(jnp.zeros(count), jnp.zeros(count, jnp.int32), {}, zeros, dict(zeros))
        carry = world, state, seen, jnp.zeros(count, bool), begun
        world, *_, played = lax.while_loop(lambda parts: ~parts[3].all(), advance, carry)
        return played._replace(outcomes=worlds.outcomes(world))

    return play


def repeated(state: Any, count: int) -> Any:
    """A policy's state for each of `count` episodes: every array with that leading axis."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *jnp.shape(leaf))), state)


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
