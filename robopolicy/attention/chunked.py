"""Linear attention over tokens whose features do not fit in a cache, a chunk of them at a time.

Sums over tokens are carried from chunk to chunk on the largest scale so far. Ranking computes the features
of keys twice, once to sum them and once for the scores, which costs less than to store them all.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import FeatureMap, Features
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

BUDGET = 2**20
"""How many numbers of one side's features are processed at a time: four megabytes, which fit in a cache."""


class Layout(NamedTuple):
    """How a map's blocks are grouped, and their widths.

    Attributes:
      groups: which blocks share a narrow factor on both sides.
      narrow, wide: widths of the two factors of each group; narrow is 1 where there is one factor.
    """

    groups: list[list[int]]
    narrow: list[int]
    wide: list[int]

    def tokens(self, values: int) -> int:
        """How many tokens to work on at a time when their features are summed times that many values."""
        numbers = sum(values * n + w for n, w in zip(self.narrow, self.wide, strict=True))
        return max(64, BUDGET // numbers)


Sums = tuple[list[Array], Array]
"""Sums of features over tokens, and the logarithm of the scale that they are on."""


def chunked_reading(
    feature_map: FeatureMap,
    features: Features,
    layout: Layout,
    q: Array,
    k: Array,
    values: Array,
    mask: Array | None,
) -> Array:
    """Kernel estimates times values [S, V], summed over keys: [T, V], rows on scales of their own."""
    groups, length = layout.groups, layout.tokens(values.shape[1])
    total, _ = _key_sums(feature_map, features, groups, k, values, mask, length)

    def one(q: Array, real: Array) -> Array:
        queries = _queries(feature_map, features, groups, q)
        with jax.named_scope("contraction"):
            return read(queries, total)

    return _each(one, q, None, length)


def chunked_rank(
    feature_map: FeatureMap, features: Features, layout: Layout, q: Array, k: Array, mask: Array | None
) -> Array:
    """Column sums of the row-normalised attention matrix, [S]."""
    groups, length = layout.groups, layout.tokens(1)
    total, scale = _key_sums(feature_map, features, groups, k, jnp.ones_like(k[:, :1]), mask, length)

    def ask(q: Array, real: Array) -> Sums:
        queries = _queries(feature_map, features, groups, q)
        with jax.named_scope("ranking"):
            inverse = jnp.where(real[:, None], 1 / guarded(read(queries, total)), 0)
            return sums(queries, inverse), jnp.zeros(())

    asked, _ = _fold(ask, q, None, length)

    def answer(k: Array, real: Array) -> Array:
        keys = _keys(feature_map, features, groups, k, real, scale)
        with jax.named_scope("ranking"):
            return read(keys, asked)

    return _each(answer, k, mask, length)[:, 0]


def _key_sums(
    feature_map: FeatureMap,
    features: Features,
    groups: list[list[int]],
    k: Array,
    values: Array,
    mask: Array | None,
    length: int,
) -> Sums:
    def one(both: Array, real: Array) -> Sums:
        k, values = both[:, :width], both[:, width:]
        with jax.named_scope("key map"):
            keys, scale = on_common_scale(feature_map.apply_k(features, k), real)
            grouped = merged(keys, groups)
        with jax.named_scope("contraction"):
            return sums(grouped, values), scale

    width = k.shape[1]
    return _fold(one, jnp.concatenate([k, values], axis=1), mask, length)


def _queries(
    feature_map: FeatureMap, features: Features, groups: list[list[int]], q: Array
) -> list[Weighted]:
    with jax.named_scope("query map"):
        return merged(on_row_scale(feature_map.apply_q(features, q)), groups)


def _keys(
    feature_map: FeatureMap, features: Features, groups: list[list[int]], k: Array, real: Array, scale: Array
) -> list[Weighted]:
    with jax.named_scope("key map"):
        return merged(on_common_scale(feature_map.apply_k(features, k), real, scale)[0], groups)


def layout_of(feature_map: FeatureMap, features: Features, q: Array, k: Array) -> Layout:
    """The layout of a map, found on one token without computing anything."""
    found: list[Layout] = []

    def look(features: Features, q: Array, k: Array) -> None:
        queries = on_row_scale(feature_map.apply_q(features, q))
        keys, _ = on_common_scale(feature_map.apply_k(features, k), None)
        groups = shared(queries, keys)
        blocks = merged(keys, groups)
        narrow = [1 if block.narrow is None else block.narrow.shape[-1] for block in blocks]
        found.append(Layout(groups, narrow, [block.wide.shape[-1] for block in blocks]))

    jax.eval_shape(look, features, *(jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype) for x in (q, k)))
    return found[0]


def _fold(sums_of: Callable[[Array, Array], Sums], x: Array, mask: Array | None, length: int) -> Sums:
    """Sums over all tokens from those of chunks."""

    def step(carry: Sums, chunk: tuple[Array, Array]) -> tuple[Sums, None]:
        (total, scale), (more, other) = carry, sums_of(*chunk)
        larger = jnp.maximum(scale, other)
        # Where no token has counted yet, both scales are -inf and both sums zero.
        safe = jnp.where(jnp.isfinite(larger), larger, 0)
        a, b = jnp.exp(scale - safe), jnp.exp(other - safe)
        return ([a * t + b * m for t, m in zip(total, more, strict=True)], larger), None

    chunks = _chunks(x, mask, length)
    shapes = jax.eval_shape(sums_of, *(c[0] for c in chunks))
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[0]), jnp.full((), -jnp.inf, x.dtype)
    return jax.lax.scan(step, start, chunks)[0]


def _each(one: Callable[[Array, Array], Array], x: Array, mask: Array | None, length: int) -> Array:
    """The results of all chunks, one after another: [T, ...] for x [T, ...]."""

    def step(carry: None, chunk: tuple[Array, Array]) -> tuple[None, Array]:
        return None, one(*chunk)

    found = jax.lax.scan(step, None, _chunks(x, mask, length))[1]
    return found.reshape(-1, *found.shape[2:])[: len(x)]


def _chunks(x: Array, mask: Array | None, length: int) -> tuple[Any, Any]:
    """Tokens [C, L, D] and whether each is one, [C, L]: chunks of at most `length`, the last filled up."""
    count = -(-len(x) // length)
    size = -(-len(x) // count)
    filling = count * size - len(x)
    real = jnp.ones(len(x), bool) if mask is None else mask
    padded = jnp.pad(x, ((0, filling), (0, 0))), jnp.pad(real, (0, filling))
    return padded[0].reshape(count, size, -1), padded[1].reshape(count, size)
