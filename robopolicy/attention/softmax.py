"""Exact softmax attention: the reference, quadratic in tokens."""

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import Attention, Features, check_inputs


def softmax() -> Attention:
    """Attention with the exact kernel exp(q.k); nothing is drawn, so its features are `()`."""

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        with jax.named_scope("contraction"):
            weights, row_sums = _rows(q, k, mask)
            v = v if mask is None else jnp.where(mask[:, None], v, 0)
            return weights @ v / row_sums

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        with jax.named_scope("ranking"):
            weights, row_sums = _rows(q, k, mask)
            return ((1 / row_sums).T @ weights)[0]

    return Attention(lambda key, head_dim: (), apply, rank)


def _rows(q: Array, k: Array, mask: Array | None) -> tuple[Array, Array]:
    """exp(q.k) [T, S] and its row sums [T, 1], on a scale per row that cancels between them."""
    logits = q @ (k if mask is None else jnp.where(mask[:, None], k, 0)).T
    logits = logits if mask is None else jnp.where(mask, logits, -jnp.inf)
    peak = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    weights = jnp.exp(logits - (peak if mask is None else jnp.where(jnp.any(mask), peak, 0)))
    row_sums = jnp.sum(weights, axis=1, keepdims=True)
    # At least one where any key is left; without keys, the numerators are zero and so is the result.
    return weights, jnp.maximum(row_sums, 1)
