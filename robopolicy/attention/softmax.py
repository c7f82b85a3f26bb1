"""Exact softmax attention: the reference, quadratic in tokens."""

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import Attention, Features, check_causal, check_inputs, widened


def softmax() -> Attention:
    """Attention with the exact kernel exp(q.k), without a draw: its features are `()`."""

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        with jax.named_scope("contraction"):
            return _average(*_rows(q, k, mask), v, mask)

    def causal(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_causal(q, k, v, mask)
        with jax.named_scope("contraction"):
            past = jnp.tril(jnp.ones((len(q), len(k)), bool))
            return _average(*_rows(q, k, mask, past), v, mask)

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        with jax.named_scope("ranking"):
            weights, row_sums = _rows(q, k, mask)
            return ((1 / row_sums).T @ weights)[0]

    def denominators(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        with jax.named_scope("contraction"):
            return jnp.sum(_rows(q, k, mask)[0], axis=1)

    def init(key: Array, head_dim: int) -> Features:
        return ()

    return Attention(init, apply, rank, causal, denominators, lambda key, q, k: ())


def softmax_of_pairs(q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None) -> Array:
    """Exact attention [T, V] of one head, with logits q.k + bias and a mask of pairs.

    q is [T, D], k [S, D] and v [S, V]; bias and mask, bool, broadcast to [T, S]. A query without any key
    gets 0.
    """
    return _average(*_rows(q, k, None, True if mask is None else mask, bias), v, None)


def _average(weights: Array, row_sums: Array, v: Array, mask: Array | None) -> Array:
    return weights @ (v if mask is None else jnp.where(mask[:, None], v, 0)) / row_sums


def _rows(
    q: Array, k: Array, mask: Array | None, pairs: Array | bool = True, bias: Array | None = None
) -> tuple[Array, Array]:
    """exp(q.k + bias) [T, S] and its row sums [T, 1], on a scale per row that cancels between them.

    Masked keys, and `pairs` [T, S] that are False, weigh nothing.
    """
    q, k = widened(q, k)
    logits = q @ (k if mask is None else jnp.where(mask[:, None], k, 0)).T
    logits = logits if bias is None else logits + bias
    if mask is None and pairs is True and bias is None:
        peak = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    else:
        logits = jnp.where(pairs if mask is None else pairs & mask, logits, -jnp.inf)
        peak = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
        peak = jnp.where(jnp.isfinite(peak), peak, 0)
    weights = jnp.exp(logits - peak)
    row_sums = jnp.sum(weights, axis=1, keepdims=True)
    # Row sums are at least one, except without keys: then the numerators are zero, and so is the result.
    # A maximum with 1 would halve the derivative of a row whose sum is one.
    return weights, jnp.maximum(row_sums, 0.5)
