"""Attention and ranking in time linear in tokens, from any feature map.

With row-normalised attention A = diag(1/D) Q' K'^T, where Q' and K' are features and D = Q' K'^T 1:

    apply  A V    = (Q' (K'^T V)) / D
    rank   A^T 1  = K' (Q'^T (1/D))

Both consist of two operations, a sum of features over tokens and its product with features (contraction.py).
If the features of all tokens do not fit in a cache, both process the tokens in chunks (chunked.py).

Two scalings cancel in A and keep it finite: one for each query row, and one for all keys and all blocks.
Nothing is added to a feature. Features of both signs can make D negative, see `contraction.guarded`.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import (
    Attention,
    FeatureMap,
    Features,
    check_causal,
    check_inputs,
    fit,
    widened,
)
from robopolicy.attention.causal import causal_sums
from robopolicy.attention.chunked import Head, chunked_rank, chunked_reading, head_of
from robopolicy.attention.contraction import inverse, quotient, read, sums


def linear(feature_map: FeatureMap) -> Attention:
    """Attention with the kernel of `feature_map`; its features are the map's."""

    def prepared(features: Features, q: Array, k: Array, mask: Array | None) -> tuple[Head, Array, Array]:
        q, k = widened(q, k)
        with jax.named_scope("key map"):
            # Masked keys may be anything, NaN included.
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            features = feature_map.adapt(features, q, k, mask)
        return head_of(feature_map, features, q, k), q, k

    def reading(features: Features, q: Array, k: Array, values: Array, mask: Array | None) -> Array:
        """Kernel estimates times values [S, V], summed over keys: [T, V], rows on scales of their own."""
        head, q, k = prepared(features, q, k, mask)
        length = head.chunk(max(len(q), len(k)), values.shape[1])
        if length is not None:
            return chunked_reading(head, q, k, values, mask, length)
        queries, keys = head.sides(q, k, mask)
        with jax.named_scope("contraction"):
            return read(queries, sums(keys, values))

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        with jax.named_scope("contraction"):
            values = _with_ones(v, mask)
        summed = reading(features, q, k, values, mask)
        with jax.named_scope("contraction"):
            return _divided(summed, mask)

    def denominators(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        return reading(features, q, k, jnp.ones_like(k[:, :1]), mask)[:, 0]

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        head, q, k = prepared(features, q, k, mask)
        length = head.chunk(max(len(q), len(k)), 1)
        if length is not None:
            return chunked_rank(head, q, k, mask, length)
        queries, keys = head.sides(q, k, mask)
        with jax.named_scope("ranking"):
            row_sums = read(queries, sums(keys, jnp.ones_like(k[:, :1])))
            return read(keys, sums(queries, inverse(row_sums)))[:, 0]

    def causal(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_causal(q, k, v, mask)
        q, k = widened(q, k)
        # Constants that follow the data would depend on later tokens, so those of the draw stay.
        with jax.named_scope("query map"):
            queries = feature_map.apply_q(features, q)
        with jax.named_scope("key map"):
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            keys = feature_map.apply_k(features, k)
        with jax.named_scope("contraction"):
            summed = causal_sums(queries.joined(), keys.joined(), _with_ones(v, mask), mask)
            return _divided(summed, mask)

    return Attention(feature_map.init, apply, rank, causal, denominators, partial(fit, feature_map))


def _divided(summed: Array, mask: Array | None) -> Array:
    """Numerators over row sums, the last column; 0 without keys, with derivatives of any order."""
    row_sums = summed[:, -1:] if mask is None else jnp.where(summed[:, -1:] == 0, 1.0, summed[:, -1:])
    return quotient(summed[:, :-1], row_sums)


def _with_ones(v: Array, mask: Array | None) -> Array:
    """Values and a column of ones, which gives D in the same product as the numerators."""
    v = v if mask is None else jnp.where(mask[:, None], v, 0)
    return jnp.concatenate([v, jnp.ones_like(v[:, :1])], axis=1)
