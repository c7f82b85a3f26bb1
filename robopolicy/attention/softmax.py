"""Exact softmax attention: the reference, quadratic in tokens.

On a CPU, the weights of many tokens are computed a few rows at a time. Those of all pairs do not fit in a
cache, and the system would clear new pages for them in every call. Causal attention, and attention with a
bias or a mask of pairs, compute all of them at once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import Attention, Features, check_causal, check_inputs, widened
from robopolicy.attention.chunked import chunk_of, each_chunk, sum_over_chunks


def softmax() -> Attention:
    """Attention with the exact kernel exp(q.k), without a draw: its features are `()`."""

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        with jax.named_scope("contraction"):
            keys, values = k.T, v.T
            return _quotient(*_by_rows(lambda q: _numerators(*_rows(q, keys, mask), values, mask), q, k))

    def causal(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_causal(q, k, v, mask)
        with jax.named_scope("contraction"):
            past = jnp.tril(jnp.ones((len(q), len(k)), bool))
            return _quotient(*_numerators(*_rows(q, k.T, mask, past), v.T, mask))

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)

        def shares(q: Array, real: Array | None) -> Array:
            weights, row_sums = _rows(q, keys, mask)
            inverse = 1 / row_sums if real is None else jnp.where(real[:, None], 1 / row_sums, 0.0)
            return (inverse.T @ weights)[0]

        with jax.named_scope("ranking"):
            keys = k.T
            rows = _rows_at_once(q, k)
            return (
                shares(q, None)
                if rows is None
                else sum_over_chunks(jax.checkpoint(shares, prevent_cse=False), q, rows)
            )

    def denominators(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        with jax.named_scope("contraction"):
            keys = k.T
            return _by_rows(lambda q: jnp.sum(_rows(q, keys, mask)[0], axis=1), q, k)

    def init(key: Array, head_dim: int) -> Features:
        return ()

    return Attention(init, apply, rank, causal, denominators, lambda key, q, k: ())


def _rows_at_once(q: Array, k: Array) -> int | None:
    """The number of queries in a chunk, None for all of them."""
    return chunk_of(len(q), len(k)) if jax.default_backend() == "cpu" else None


def _by_rows(one: Callable[[Array], Any], q: Array, k: Array) -> Any:
    """Arrays [T, ...] for queries [T, D], each row of which depends on its own query alone.

    A derivative computes the weights of a chunk anew.
    """
    rows = _rows_at_once(q, k)
    if rows is None:
        return one(q)
    return each_chunk(jax.checkpoint(lambda chunk, real: one(chunk), prevent_cse=False), q, None, rows)


def softmax_of_pairs(q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None) -> Array:
    """Exact attention [T, V] of one head, with logits q.k + bias and a mask of pairs.

    q is [T, D], k [S, D] and v [S, V]; bias and mask, bool, broadcast to [T, S]. A query without any key
    gets 0.
    """
    rows = _rows(q, k.T, None, True if mask is None else mask, bias)
    return _quotient(*_numerators(*rows, v.T, None))


def _numerators(weights: Array, row_sums: Array, values: Array, mask: Array | None) -> tuple[Array, Array]:
    values = values if mask is None else jnp.where(mask, values, 0.0)
    return jnp.einsum("ts,vs->tv", weights, values), row_sums


def _quotient(numerators: Array, row_sums: Array) -> Array:
    return numerators / row_sums


def _rows(
    q: Array, keys: Array, mask: Array | None, pairs: Array | bool = True, bias: Array | None = None
) -> tuple[Array, Array]:
    """exp(q.k + bias) [T, S] and its row sums [T, 1], on a scale per row that cancels between them.

    Keys are [D, S], and values of `_numerators` [V, S]: a gradient then sums over the rows of a chunk in an
    order that needs no copy of the weights.

    Masked keys, and `pairs` [T, S] that are False, weigh nothing.
    """
    q, keys = widened(q, keys)
    logits = q @ (keys if mask is None else jnp.where(mask, keys, 0.0))
    logits = logits if bias is None else logits + bias
    if mask is None and pairs is True and bias is None:
        peak = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    else:
        logits = jnp.where(pairs if mask is None else pairs & mask, logits, -jnp.inf)
        peak = jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
        peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    weights = jnp.exp(logits - peak)
    row_sums = jnp.sum(weights, axis=1, keepdims=True)
    # Row sums are at least one, except without keys: then the numerators are zero, and so is the result.
    # A maximum with 1 would halve the derivative of a row whose sum is one.
    return weights, jnp.maximum(row_sums, 0.5)
