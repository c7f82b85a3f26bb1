"""Attention over tokens whose features or weights do not fit in a cache, a chunk of tokens at a time.

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
    inverse,
    merged,
    on_common_scale,
    on_row_scale,
    read,
    shared,
    sums,
)

BUDGET = 2**20
"""Numbers that are computed at once, features of one side or weights of one head: four megabytes."""
CHUNK = 2**17
"""Numbers in a chunk on a CPU, where there are more. Heads and frames have chunks of their own."""
LEAST = 64  # tokens that are always processed at once


def chunk_of(tokens: int, numbers: int) -> int | None:
    """The most tokens, of that many numbers each, in a chunk; None for all of them.

    Another device has fewer chunks, of `BUDGET` numbers, since it processes them one after another.
    """
    whole = max(LEAST, BUDGET // numbers)
    if tokens <= whole:
        return None
    return max(LEAST, CHUNK // numbers) if jax.default_backend() == "cpu" else whole


class Head(NamedTuple):
    """A map with its features, and its blocks in groups.

    Attributes:
      groups: blocks that share a narrow factor on both sides.
      narrow, wide: widths of the two factors of each group; narrow is 1 if there is one factor.
    """

    feature_map: FeatureMap
    features: Features
    groups: list[list[int]]
    narrow: list[int]
    wide: list[int]

    def chunk(self, tokens: int, values: int) -> int | None:
        """`chunk_of` tokens whose features are summed times that many values."""
        return chunk_of(tokens, sum(values * n + w for n, w in zip(self.narrow, self.wide, strict=True)))

    def queries(self, q: Array) -> list[Weighted]:
        """The features of queries [T, D], each row relative to its largest block."""
        with jax.named_scope("query map"):
            return merged(on_row_scale(self.feature_map.apply_q(self.features, q)), self.groups)

    def keys(self, k: Array, mask: Array | None, scale: Array | None = None) -> tuple[list[Weighted], Array]:
        """The features of keys [S, D], and their common scale, see `on_common_scale`."""
        with jax.named_scope("key map"):
            keys, scale = on_common_scale(self.feature_map.apply_k(self.features, k), mask, scale)
            return merged(keys, self.groups), scale

    def sides(self, q: Array, k: Array, mask: Array | None) -> tuple[list[Weighted], list[Weighted]]:
        """`queries` and `keys`; the last bits of recorded results depend on this order."""
        with jax.named_scope("query map"):
            queries = on_row_scale(self.feature_map.apply_q(self.features, q))
        with jax.named_scope("key map"):
            keys, _ = on_common_scale(self.feature_map.apply_k(self.features, k), mask)
        with jax.named_scope("query map"):
            queries = merged(queries, self.groups)
        with jax.named_scope("key map"):
            return queries, merged(keys, self.groups)


def head_of(feature_map: FeatureMap, features: Features, q: Array, k: Array) -> Head:
    """The groups of a map's blocks, found on the shapes of one query and one key."""
    heads: list[Head] = []

    def group(features: Features, q: Array, k: Array) -> None:
        queries = on_row_scale(feature_map.apply_q(features, q))
        keys, _ = on_common_scale(feature_map.apply_k(features, k), None)
        groups = shared(queries, keys)
        blocks = merged(keys, groups)
        narrow = [1 if block.narrow is None else block.narrow.shape[-1] for block in blocks]
        heads.append(Head(feature_map, (), groups, narrow, [block.wide.shape[-1] for block in blocks]))

    jax.eval_shape(group, features, *(jax.ShapeDtypeStruct((1, x.shape[1]), x.dtype) for x in (q, k)))
    return heads[0]._replace(features=features)


Sums = tuple[list[Array], Array]
"""Sums of features over tokens, and the logarithm of the scale that they are on."""


def chunked_reading(head: Head, q: Array, k: Array, values: Array, mask: Array | None, length: int) -> Array:
    """Kernel estimates times values [S, V], summed over keys: [T, V], rows on scales of their own."""
    total, _ = _key_sums(head, k, values, mask, length)

    def one(q: Array, real: Array) -> Array:
        queries = head.queries(q)
        with jax.named_scope("contraction"):
            return read(queries, total)

    return each_chunk(one, q, None, length)


def chunked_rank(head: Head, q: Array, k: Array, mask: Array | None, length: int) -> Array:
    """Column sums of the row-normalised attention matrix, [S]."""
    key_sums, scale = _key_sums(head, k, jnp.ones_like(k[:, :1]), mask, length)

    def of_queries(q: Array, real: Array) -> Sums:
        queries = head.queries(q)
        with jax.named_scope("ranking"):
            shares = jnp.where(real[:, None], inverse(read(queries, key_sums)), 0.0)
            return sums(queries, shares), jnp.zeros(())

    query_sums, _ = _fold(of_queries, q, None, length, "ranking")

    def of_keys(k: Array, real: Array) -> Array:
        keys, _ = head.keys(k, real, scale)
        with jax.named_scope("ranking"):
            return read(keys, query_sums)

    return each_chunk(of_keys, k, mask, length)[:, 0]


def _key_sums(head: Head, k: Array, values: Array, mask: Array | None, length: int) -> Sums:
    def one(both: Array, real: Array) -> Sums:
        k, values = both[:, :width], both[:, width:]
        keys, scale = head.keys(k, real)
        with jax.named_scope("contraction"):
            return sums(keys, values), scale

    width = k.shape[1]
    return _fold(one, jnp.concatenate([k, values], axis=1), mask, length, "contraction")


def _fold(
    sums_of: Callable[[Array, Array], Sums], x: Array, mask: Array | None, length: int, scope: str
) -> Sums:
    """Sums over all tokens from those of chunks, added in this scope."""

    def step(carry: Sums, chunk: tuple[Array, Array]) -> tuple[Sums, None]:
        (total, scale), (more, other) = carry, sums_of(*chunk)
        with jax.named_scope(scope):
            larger = jnp.maximum(scale, other)
            # Before the first unmasked token, both scales are -inf and both sums zero.
            safe = jnp.where(jnp.isfinite(larger), larger, 0.0)
            a, b = jnp.exp(scale - safe), jnp.exp(other - safe)
            return ([a * t + b * m for t, m in zip(total, more, strict=True)], larger), None

    chunks = _chunks(x, mask, length)
    shapes = jax.eval_shape(sums_of, *(c[0] for c in chunks))
    dtype = jnp.result_type(*(shape.dtype for shape in jax.tree.leaves(shapes)))
    start = jax.tree.map(lambda s: jnp.zeros(s.shape, dtype), shapes[0]), jnp.full((), -jnp.inf, dtype)
    return jax.lax.scan(step, start, chunks)[0]


def each_chunk(one: Callable[[Array, Array], Any], x: Array, mask: Array | None, length: int) -> Any:
    """The results of all chunks, one after another: arrays [T, ...] for x [T, ...]."""
    results = jax.lax.map(lambda chunk: one(*chunk), _chunks(x, mask, length))
    return jax.tree.map(
        lambda each: each.reshape(each.shape[0] * each.shape[1], *each.shape[2:])[: len(x)], results
    )


def sum_over_chunks(one: Callable[[Array, Array], Array], x: Array, length: int) -> Array:
    """The sum of the results of all chunks of x [T, D]; `one` leaves out tokens that are padding."""
    chunks = _chunks(x, None, length)
    start = jnp.zeros_like(jax.eval_shape(one, *(c[0] for c in chunks)))
    return jax.lax.scan(lambda total, chunk: (total + one(*chunk), None), start, chunks)[0]


def _chunks(x: Array, mask: Array | None, length: int) -> tuple[Any, Any]:
    """Tokens [C, L, D] in chunks of at most `length`, and [C, L], False for padding and masked tokens."""
    least = -(-len(x) // length)
    count = next((n for n in range(least, 2 * least) if len(x) % n == 0), least)
    size = -(-len(x) // count)
    filling = count * size - len(x)
    real = jnp.ones(len(x), bool) if mask is None else mask
    padded = jnp.pad(x, ((0, filling), (0, 0))), jnp.pad(real, (0, filling))
    return padded[0].reshape(count, size, -1), padded[1].reshape(count, size)
