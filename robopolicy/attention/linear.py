"""Attention and ranking in time linear in tokens, from any feature map.

With row-normalised attention A = diag(1/D) Q' K'^T, where Q' and K' are features and D = Q' K'^T 1:

    apply  A V    = (Q' (K'^T V)) / D
    rank   A^T 1  = K' (Q'^T (1/D))

so both consist of two operations, a sum of features over tokens and its product with features
(contraction.py). Where the features of all tokens do not fit in a cache, both process the tokens in chunks
(chunked.py).

Two scalings cancel in A and keep it finite: one for each query row, and one for all keys and all blocks.
Nothing is added to a feature. D may be negative for features that are not positive; see
`contraction.guarded`.
"""

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import Attention, FeatureMap, Features, check_causal, check_inputs, fit
from robopolicy.attention.causal import causal_sums
from robopolicy.attention.chunked import chunked_rank, chunked_reading, layout_of
from robopolicy.attention.contraction import (
    Weighted,
    guarded,
    merged,
    on_common_scale,
    on_row_scale,
    read,
    shared,
    sums,
)


def linear(feature_map: FeatureMap) -> Attention:
    """Attention with the kernel of `feature_map`; its features are the map's."""

    def adapted(features: Features, q: Array, k: Array, mask: Array | None) -> tuple[Features, Array]:
        with jax.named_scope("key map"):
            # Padding may be anything, NaN included, and is replaced here.
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            return feature_map.adapt(features, q, k, mask), k

    def weighted(
        features: Features, q: Array, k: Array, mask: Array | None
    ) -> tuple[list[Weighted], list[Weighted]]:
        with jax.named_scope("query map"):
            on_rows = on_row_scale(feature_map.apply_q(features, q))
        with jax.named_scope("key map"):
            on_common, _ = on_common_scale(feature_map.apply_k(features, k), mask)
        groups = shared(on_rows, on_common)
        with jax.named_scope("query map"):
            on_rows = merged(on_rows, groups)
        with jax.named_scope("key map"):
            return on_rows, merged(on_common, groups)

    def reading(features: Features, q: Array, k: Array, values: Array, mask: Array | None) -> Array:
        """Kernel estimates times values [S, V], summed over keys: [T, V], rows on scales of their own."""
        features, k = adapted(features, q, k, mask)
        layout = layout_of(feature_map, features, q, k)
        if max(len(q), len(k)) > layout.tokens(values.shape[1]):
            return chunked_reading(feature_map, features, layout, q, k, values, mask)
        queries, keys = weighted(features, q, k, mask)
        with jax.named_scope("contraction"):
            return read(queries, sums(keys, values))

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        with jax.named_scope("contraction"):
            values = _with_ones(v, mask)
        found = reading(features, q, k, values, mask)
        with jax.named_scope("contraction"):
            return found[:, :-1] / guarded(found[:, -1:])

    def denominators(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        return reading(features, q, k, jnp.ones_like(k[:, :1]), mask)[:, 0]

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        features, k = adapted(features, q, k, mask)
        layout = layout_of(feature_map, features, q, k)
        if max(len(q), len(k)) > layout.tokens(1):
            return chunked_rank(feature_map, features, layout, q, k, mask)
        queries, keys = weighted(features, q, k, mask)
        with jax.named_scope("ranking"):
            row_sums = read(queries, sums(keys, jnp.ones_like(k[:, :1])))
            return read(keys, sums(queries, 1 / guarded(row_sums)))[:, 0]

    def causal(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_causal(q, k, v, mask)
        # Constants adapted to the data would leak later tokens: use those of the draw.
        with jax.named_scope("query map"):
            queries = feature_map.apply_q(features, q)
        with jax.named_scope("key map"):
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            keys = feature_map.apply_k(features, k)
        with jax.named_scope("contraction"):
            found = causal_sums(queries.joined(), keys.joined(), _with_ones(v, mask), mask)
            return found[:, :-1] / guarded(found[:, -1:])

    def fit_map(key: Array, q: Array, k: Array) -> Features:
        return fit(feature_map, key, q, k)

    return Attention(feature_map.init, apply, rank, causal, denominators, fit_map)


def _with_ones(v: Array, mask: Array | None) -> Array:
    """Values and a column of ones, which sums the features themselves: numerators and D in one product."""
    v = v if mask is None else jnp.where(mask[:, None], v, 0)
    return jnp.concatenate([v, jnp.ones_like(v[:, :1])], axis=1)
