"""Attention as a memory: what was written by keys is read by queries, for as long as the memory runs.

    memory = streaming("trigonometric(m=32)", decay=0.97)
    state = memory.init(features, width=16, values=1, tokens=192)
    state = memory.update(features, state, k, v)      the tokens of a step
    found = memory.read(features, state, q)

A read is attention over all tokens so far, where a token that is n updates old weighs decay^n. With random
features the state is their sums with the values: its size and the cost of a step never change
(Katharopoulos et al., 2020, Eq. 18 and 19). Exact softmax keeps the tokens of its last updates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from robopolicy.attention.base import FeatureMap, Features, check_inputs, widened
from robopolicy.attention.catalogue import canonical, feature_map
from robopolicy.attention.chunked import Head, head_of
from robopolicy.attention.contraction import (
    guarded,
    merged,
    on_common_scale,
    on_row_scale,
    quotient,
    read,
    sums,
)
from robopolicy.attention.projections import check_counts
from robopolicy.attention.softmax import softmax_of_pairs

NOTHING = -1e29  # logarithm of the weight of what was never written
LARGEST = 80.0  # logarithm that is near the largest of float32
RULES = ("sum", "delta")

State = Any
"""A pytree of arrays of fixed shapes, which `update` replaces."""


class Memory(NamedTuple):
    """Pure functions of a memory for one head.

    Attributes:
      init: (features, width, values, tokens) -> state of a memory in which nothing is written, for keys of
        `width` numbers, values of `values` numbers, and updates of `tokens` tokens.
      update: (features, state, k[S, D], v[S, V], mask=None) -> state. Tokens whose `mask` [S] is False are
        not written; all that is there gets older.
      read: (features, state, q[T, D], least=None) -> [T, V]; 0 if nothing is written. Where estimated weights
        of tokens nearly cancel, their mean may be anything: a mean weight below `least` counts as `least`, so
        that the read fades to 0. Exact softmax and the delta rule have no such means, and ignore it.

    Wrong shapes raise ValueError.
    """

    init: Callable[[Features, int, int, int], State]
    update: Callable[..., State]
    read: Callable[..., Array]


class Summed(NamedTuple):
    """Sums of features times values and one: a matrix for each group of blocks, and their log scale [].

    `written` [] is the number of tokens, weighted by their age.
    """

    sums: list[Array]
    log_scale: Array
    written: Array


class Table(NamedTuple):
    """Sums of features times values [R, V], and their log scale []."""

    values: Array
    log_scale: Array


class Kept(NamedTuple):
    """Tokens of the last updates, oldest first: keys [N, D], values [N, V], logarithms of weights [N]."""

    k: Array
    v: Array
    weights: Array


def streaming(spec: str, decay: float = 1.0, rule: str = "sum", updates: int | None = None) -> Memory:
    """The memory of a mechanism.

    Args:
      spec: of the mechanism.
      decay: factor of all that was written, at each update. With 1, float32 stops adding to a sum of some
        10^7 tokens.
      rule: `sum`: a read is the mean of all values, weighted by the kernel. `delta`: a token replaces what
        its key reads so far, so that its key reads its value (Schlag et al., 2021, Eq. 24, with a rate of
        one), and a read is a sum: 0 far away from all keys.
      updates: for softmax, how many updates it keeps.

    Raises ValueError, in one line, for an argument out of its range.
    """
    exact = canonical(spec) == "softmax"
    if isinstance(decay, bool) or not isinstance(decay, Real) or not 0 < decay <= 1:
        raise ValueError(f"decay is {decay!r}: it must be a number above 0 and at most 1")
    if rule not in RULES:
        raise ValueError(f"rule is {rule!r}: it must be one of {', '.join(RULES)}")
    if exact and rule != "sum":
        raise ValueError(f"rule is {rule!r}: softmax has the rule 'sum' alone")
    if exact != (updates is not None):
        needs = "softmax needs it, as it keeps tokens" if exact else "only softmax keeps tokens"
        raise ValueError(f"updates is {updates!r}: {needs}")
    if updates is not None:
        check_counts(updates=updates)
        return _exact(math.log(decay), updates)
    return (_summed if rule == "sum" else _replaced)(feature_map(spec), math.log(decay))


def _summed(feature_map: FeatureMap, faded: float) -> Memory:
    def head(features: Features, width: int) -> Head:
        one = jnp.zeros((1, width))
        return head_of(feature_map, features, one, one)

    def init(features: Features, width: int, values: int, tokens: int) -> Summed:
        shapes = head(features, width)
        sides = zip(shapes.narrow, shapes.wide, strict=True)
        zeros = [jnp.zeros(((values + 1) * n, w)) for n, w in sides]
        return Summed(zeros, jnp.float32(NOTHING), jnp.zeros(()))

    def update(features: Features, state: Summed, k: Array, v: Array, mask: Array | None = None) -> Summed:
        check_inputs(k, k, v, mask)
        k, v = _written(k, mask), _written(v, mask)
        shapes = head(features, k.shape[1])
        _check_width("v", v, "values", len(state.sums[0]) // shapes.narrow[0] - 1)
        old = state.log_scale + faded
        with jax.named_scope("key map"):
            keys = feature_map.apply_k(features, k)
            scale = _largest(old, keys.log_scale, mask)
            blocks = merged(on_common_scale(keys, mask, scale)[0], shapes.groups)
        with jax.named_scope("contraction"):
            added = sums(blocks, jnp.concatenate([v, jnp.ones_like(v[:, :1])], axis=1))
            kept = jnp.exp(old - scale)
            tokens = jnp.float32(len(k)) if mask is None else jnp.sum(mask, dtype=jnp.float32)
            return Summed(
                [kept * a + b for a, b in zip(state.sums, added, strict=True)],
                scale,
                math.exp(faded) * state.written + tokens,
            )

    def read_at(features: Features, state: Summed, q: Array, least: Any = None) -> Array:
        q = _queries(q)
        groups = head(features, q.shape[1]).groups
        with jax.named_scope("query map"):
            queries = feature_map.apply_q(features, q)
            blocks = merged(on_row_scale(queries), groups)
        with jax.named_scope("contraction"):
            found = read(blocks, state.sums)
            values, weights = found[:, :-1], found[:, -1:]
            if least is not None:
                # `on_row_scale` leaves the scale of a single block out, derivatives included.
                alone = queries.blocks[0].log_scale if len(queries.blocks) == 1 else None
                scales = (queries.log_scale if alone is None else alone) + state.log_scale
                floor = least * state.written * jnp.exp(jnp.minimum(-scales, LARGEST))
                weights = jnp.maximum(weights, floor[:, None])
            return quotient(values, weights)

    return Memory(init, update, read_at)


def _replaced(feature_map: FeatureMap, faded: float) -> Memory:
    def init(features: Features, width: int, values: int, tokens: int) -> Table:
        key = jax.ShapeDtypeStruct((1, width), jnp.float32)
        shape = jax.eval_shape(lambda k: feature_map.apply_k(features, k).values, key).shape
        return Table(jnp.zeros((shape[1], values)), jnp.float32(NOTHING))

    def update(features: Features, state: Table, k: Array, v: Array, mask: Array | None = None) -> Table:
        check_inputs(k, k, v, mask)
        _check_width("v", v, "values", state.values.shape[1])
        k, v = _written(k, mask), _written(v, mask)
        with jax.named_scope("key map"):
            written, asked = feature_map.apply_k(features, k), feature_map.apply_q(features, k)
            features_k, features_q = written.values, asked.values
            own = guarded(jnp.sum(features_k * features_q, axis=1, keepdims=True))
            ways = features_k / own  # what they are written along: each reads 1 at its own key
        # A token is written by features over the scale of its query, so that its key reads its value.
        scales = -asked.log_scale
        old = state.log_scale + faded
        scale = _largest(old, scales, mask)
        # A token that is not written may have a scale beyond float32.
        shares = jnp.exp((scales if mask is None else jnp.where(mask, scales, scale)) - scale)
        writes = jnp.ones(len(k)) if mask is None else mask.astype(k.dtype)

        def write(table: Array, token: tuple[Array, ...]) -> tuple[Array, None]:
            way, asked, value, share, is_written = token
            lacks = value - (asked @ table) / guarded(share)
            return table + is_written * share * jnp.outer(way, lacks), None

        with jax.named_scope("contraction"):
            table = jnp.exp(old - scale) * state.values
            table, _ = lax.scan(write, table, (ways, features_q, v, shares, writes))
        return Table(table, scale)

    def read_at(features: Features, state: Table, q: Array, least: Any = None) -> Array:
        q = _queries(q)
        with jax.named_scope("query map"):
            asked = feature_map.apply_q(features, q)
        with jax.named_scope("contraction"):
            return jnp.exp(asked.log_scale + state.log_scale)[:, None] * (asked.values @ state.values)

    return Memory(init, update, read_at)


def _exact(faded: float, updates: int) -> Memory:
    def init(features: Features, width: int, values: int, tokens: int) -> Kept:
        count = updates * tokens
        return Kept(jnp.zeros((count, width)), jnp.zeros((count, values)), jnp.full(count, NOTHING))

    def update(features: Features, state: Kept, k: Array, v: Array, mask: Array | None = None) -> Kept:
        check_inputs(k, k, v, mask)
        if len(state.k) != updates * len(k):
            raise ValueError(f"k has {len(k)} tokens: the memory keeps updates of {len(state.k) // updates}")
        _check_width("k", k, "keys", state.k.shape[1])
        _check_width("v", v, "values", state.v.shape[1])
        weights = jnp.zeros(len(k)) if mask is None else jnp.where(mask, 0.0, NOTHING)
        new = (_written(k, mask), _written(v, mask), weights)
        old = (state.k, state.v, state.weights + faded)
        return Kept(*(jnp.concatenate([a[len(k) :], b]) for a, b in zip(old, new, strict=True)))

    def read_at(features: Features, state: Kept, q: Array, least: Any = None) -> Array:
        check_inputs(q, state.k, None, None)
        with jax.named_scope("contraction"):
            written = state.weights > NOTHING / 2
            return softmax_of_pairs(q, state.k, state.v, state.weights, written)

    return Memory(init, update, read_at)


def _written(array: Array, mask: Array | None) -> Array:
    """Tokens that are masked may be anything, NaN included."""
    (array,) = widened(array)
    return array if mask is None else jnp.where(mask[:, None], array, 0)


def _largest(old: Array, scales: Array, mask: Array | None) -> Array:
    """The scale [] of what is there after an update: that of the largest old or new features."""
    new = scales if mask is None else jnp.where(mask, scales, NOTHING)
    return lax.stop_gradient(jnp.maximum(old, jnp.max(new))).astype(old.dtype)


def _check_width(name: str, tokens: Array, kind: str, width: int) -> None:
    if tokens.shape[1] != width:
        raise ValueError(f"{name} has width {tokens.shape[1]}: the memory was made for {kind} of {width}")


def _queries(q: Array) -> Array:
    if q.ndim != 2:
        raise ValueError(f"q has shape {q.shape}; one head takes [tokens, width], use jax.vmap for more")
    return widened(q)[0]
