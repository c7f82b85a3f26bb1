"""Chunks of actions: a policy chooses several actions at once, and executes them one after the other."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def in_turn(chunk: Array, rest: Array, left: Array) -> tuple[Array, Array, Array]:
    """The action of a step, from the chunk [C, A] that this step offers, or from the one in progress.

    Args:
      chunk: what the policy chooses now; it begins when the one in progress has ended.
      rest: the next actions of the one in progress, [C - 1, A].
      left: how many of them are left, [1].

    Returns the action [A], and the next `rest` and `left`.
    """
    is_new = left < 0.5
    after = jnp.concatenate([rest, jnp.zeros_like(chunk[:1])])
    actions = jnp.where(is_new, chunk, after)
    return actions[0], actions[1:], jnp.where(is_new, len(chunk) - 1.0, left - 1.0)
