"""Attention and ranking in time linear in tokens, from any feature map.

With row-normalised attention A = diag(1/D) Q' K'^T, where Q' and K' are features and D = Q' K'^T 1:

    apply  A V    = (Q' (K'^T V)) / D
    rank   A^T 1  = K' (Q'^T (1/D))

so both are made of two operations, a sum of features over tokens and a reading of that sum by features.
Neither writes an outer product of factors per token: a block of factors R and Phi sums to the matrix R^T
Phi.

Two scalings cancel in A and are all that keeps it finite: one per query row, one for all keys and all
blocks at once. Nothing is added to a feature. D may be negative for features that are not positive; see
`_guarded`.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import (
    Attention,
    Block,
    FeatureMap,
    Features,
    ScaledFeatures,
    check_causal,
    check_inputs,
    fit,
    outer_values,
)
from robopolicy.attention.causal import causal_sums


class _Weighted(NamedTuple):
    """A block ready to be summed: its features are weight * outer(narrow, wide).

    Attributes:
      narrow: [..., N], all factors but the widest, or None when there is one factor.
      wide: [..., W], the widest factor.
      weight: [...], at most 1, or None for 1.
    """

    narrow: Array | None
    wide: Array
    weight: Array | None


def linear(feature_map: FeatureMap) -> Attention:
    """Attention with the kernel of `feature_map`; its features are the map's."""

    def mapped(
        features: Features, q: Array, k: Array, mask: Array | None
    ) -> tuple[ScaledFeatures, ScaledFeatures]:
        with jax.named_scope("key map"):
            # Padding may hold anything, NaN included: it stops here.
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            features = feature_map.adapt(features, q, k, mask)
        with jax.named_scope("query map"):
            queries = feature_map.apply_q(features, q)
        with jax.named_scope("key map"):
            return queries, feature_map.apply_k(features, k)

    def weighted(
        features: Features, q: Array, k: Array, mask: Array | None
    ) -> tuple[list[_Weighted], list[_Weighted]]:
        queries, keys = mapped(features, q, k, mask)
        with jax.named_scope("query map"):
            on_rows = _on_row_scale(queries)
        with jax.named_scope("key map"):
            return on_rows, _on_common_scale(keys, mask)

    def apply(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, v, mask)
        queries, keys = weighted(features, q, k, mask)
        with jax.named_scope("contraction"):
            read = _read(queries, _sums(keys, _with_ones(v, mask)))
            return read[:, :-1] / _guarded(read[:, -1:])

    def causal(features: Features, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
        check_causal(q, k, v, mask)
        # Constants that follow the data would carry news of the future: those of the draw stay.
        with jax.named_scope("query map"):
            queries = feature_map.apply_q(features, q)
        with jax.named_scope("key map"):
            k = k if mask is None else jnp.where(mask[:, None], k, 0)
            keys = feature_map.apply_k(features, k)
        with jax.named_scope("contraction"):
            read = causal_sums(queries.joined(), keys.joined(), _with_ones(v, mask), mask)
            return read[:, :-1] / _guarded(read[:, -1:])

    def rank(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        queries, keys = weighted(features, q, k, mask)
        with jax.named_scope("ranking"):
            row_sums = _read(queries, _sums(keys, jnp.ones_like(k[:, :1])))
            return _read(keys, _sums(queries, 1 / _guarded(row_sums)))[:, 0]

    def denominators(features: Features, q: Array, k: Array, mask: Array | None = None) -> Array:
        check_inputs(q, k, None, mask)
        queries, keys = weighted(features, q, k, mask)
        with jax.named_scope("contraction"):
            return _read(queries, _sums(keys, jnp.ones_like(k[:, :1])))[:, 0]

    def fit_map(key: Array, q: Array, k: Array) -> Features:
        return fit(feature_map, key, q, k)

    return Attention(feature_map.init, apply, rank, causal, denominators, fit_map)


def _with_ones(v: Array, mask: Array | None) -> Array:
    """Values, and a column of ones that sums the features themselves: D comes with the numerators."""
    v = v if mask is None else jnp.where(mask[:, None], v, 0)
    return jnp.concatenate([v, jnp.ones_like(v[:, :1])], axis=1)


def _on_row_scale(queries: ScaledFeatures) -> list[_Weighted]:
    """Every row relative to its largest block."""
    if len(queries.blocks) == 1:
        return [_weigh(queries.blocks[0], None)]
    scale = queries.log_scale
    return [_weigh(b, jnp.exp(_log_scale(b, scale) - scale)) for b in queries.blocks]


def _on_common_scale(keys: ScaledFeatures, mask: Array | None) -> list[_Weighted]:
    """Every key relative to the largest block of all unmasked keys; masked keys weigh nothing."""
    scale = keys.log_scale if mask is None else jnp.where(mask, keys.log_scale, -jnp.inf)
    largest = jnp.max(scale)
    if mask is not None:
        largest = jnp.where(jnp.any(mask), largest, 0)
    logs = [_log_scale(block, scale) - largest for block in keys.blocks]
    if mask is not None:
        logs = [jnp.where(mask, log, -jnp.inf) for log in logs]
    return [_weigh(block, jnp.exp(log)) for block, log in zip(keys.blocks, logs, strict=True)]


def _log_scale(block: Block, like: Array) -> Array:
    return jnp.zeros_like(like) if block.log_scale is None else block.log_scale


def _weigh(block: Block, weight: Array | None) -> _Weighted:
    *narrow, wide = sorted(block.factors, key=lambda factor: factor.shape[-1])
    return _Weighted(reduce(outer_values, narrow) if narrow else None, wide, weight)


def _sums(blocks: list[_Weighted], values: Array) -> list[Array]:
    """Sum of features times values [S, V] over tokens, a matrix [V * N, W] for every block."""
    return [_sum(block, values) for block in blocks]


def _sum(block: _Weighted, values: Array) -> Array:
    weighed = values if block.weight is None else block.weight[:, None] * values
    return (weighed if block.narrow is None else outer_values(weighed, block.narrow)).T @ block.wide


def _read(blocks: list[_Weighted], sums: list[Array]) -> Array:
    """Features dotted with the sums of `_sums`, over all blocks: [T, V]."""
    return reduce(jnp.add, [_dot(block, total) for block, total in zip(blocks, sums, strict=True)])


def _dot(block: _Weighted, total: Array) -> Array:
    read = block.wide @ total.T
    if block.narrow is not None:
        tokens, width = block.narrow.shape
        # N is the last axis: onnxruntime sums over a middle one ten times slower.
        read = jnp.sum(block.narrow[:, None, :] * read.reshape(tokens, -1, width), axis=-1)
    return read if block.weight is None else block.weight[:, None] * read


def _guarded(row_sums: Array) -> Array:
    """Row sums kept away from zero, sign and all.

    Features that are not positive can sum to a negative denominator, which is an honest failure of the
    estimate and stays visible. Only what would overflow when divided by, or when squared by a derivative,
    is moved.
    """
    floor = float(jnp.finfo(row_sums.dtype).tiny) ** 0.5
    return jnp.where(row_sums < 0, jnp.minimum(row_sums, -floor), jnp.maximum(row_sums, floor))
