"""Sums, products and multiples of kernels, on features and on maps.

There are two levels. `concatenate`, `outer` and `signed` act on the features of one side at almost no cost:
products stay factored, and every term of a sum is a block. `add`, `multiply`, `scale` and `warp` do the same
for maps, and every map has a draw of its own. Maps that share a draw (hybrid.py) use the first level.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import sqrt

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention.base import Block, FeatureMap, Features, ScaledFeatures, fit


def concatenate(*parts: ScaledFeatures) -> ScaledFeatures:
    """Features of the sum of kernels: the blocks of all parts."""
    return ScaledFeatures(tuple(block for part in parts for block in part.blocks))


def outer(*parts: ScaledFeatures) -> ScaledFeatures:
    """Features of the product of kernels: a block for every choice of one block from each part."""
    return ScaledFeatures(tuple(reduce(_times, blocks) for blocks in product(*(p.blocks for p in parts))))


def weigh(weights: Sequence[float], part: ScaledFeatures) -> ScaledFeatures:
    """Features of one block of one factor [T, R] times constants [R]. For the query side only."""
    (block,) = part.blocks
    return ScaledFeatures((block._replace(weights=(np.asarray(weights, np.float64),)),))


def signed(c: float, part: ScaledFeatures) -> ScaledFeatures:
    """Features of c times a kernel, of either sign. For the query side only: the key side stays as it is."""
    return ScaledFeatures(tuple(_multiplied(c, block) for block in part.blocks))


def constant_q(c: float, tokens: int) -> ScaledFeatures:
    """The query side of the constant kernel c: one feature with the sign of c, or none if c is 0."""
    return signed(-1.0, constant_k(c, tokens)) if c < 0 else constant_k(c, tokens)


def constant_k(c: float, tokens: int) -> ScaledFeatures:
    """The key side of the constant kernel c: one feature sqrt|c|, or none if c is 0."""
    return ScaledFeatures.of(jnp.full((tokens, 1), sqrt(abs(c)))) if c else ScaledFeatures(())


def _times(a: Block, b: Block) -> Block:
    scales = [s for s in (a.log_scale, b.log_scale) if s is not None]
    scale = sum(scales[1:], scales[0]) if scales else None
    return Block(a.factors + b.factors, scale, a.weights + b.weights)


def _multiplied(c: float, block: Block) -> Block:
    first, *others = block.weights
    weights = np.full(block.factors[0].shape[-1], c) if first is None else c * first
    return block._replace(weights=(weights, *others))


def add(f: FeatureMap, g: FeatureMap) -> FeatureMap:
    """The map of K_f + K_g. Its features are the pair of theirs, drawn independently."""
    return _pair(f, g, concatenate)


def multiply(f: FeatureMap, g: FeatureMap) -> FeatureMap:
    """The map of K_f * K_g, unbiased as the draws are independent. Its features are the pair of theirs."""
    return _pair(f, g, outer)


def scale(c: float, f: FeatureMap) -> FeatureMap:
    """The map of c * K_f, for c of either sign. Its features are those of f."""
    return f._replace(apply_q=lambda features, x: signed(c, f.apply_q(features, x)))


def warp(f: FeatureMap, queries: float | Array, keys: float | Array) -> FeatureMap:
    """The map of K_f(M x, N y) for M = queries and N = keys, numbers or matrices [D, D]."""

    def mapped(matrix: float | Array, x: Array) -> Array:
        return x * matrix if jnp.ndim(matrix) == 0 else x @ jnp.asarray(matrix).T

    return FeatureMap(
        f.init,
        lambda features, x: f.apply_q(features, mapped(queries, x)),
        lambda features, y: f.apply_k(features, mapped(keys, y)),
        lambda features, x, y, mask: f.adapt(features, mapped(queries, x), mapped(keys, y), mask),
        lambda key, x, y: fit(f, key, mapped(queries, x), mapped(keys, y)),
    )


def _pair(f: FeatureMap, g: FeatureMap, combine: Callable[..., ScaledFeatures]) -> FeatureMap:
    """Two maps, drawn independently, with their features combined."""

    def init(key: Array, dim: int) -> tuple[Features, Features]:
        key_f, key_g = jax.random.split(key)
        return f.init(key_f, dim), g.init(key_g, dim)

    def fit_both(key: Array, x: Array, y: Array) -> tuple[Features, Features]:
        key_f, key_g = jax.random.split(key)
        return fit(f, key_f, x, y), fit(g, key_g, x, y)

    return FeatureMap(
        init,
        lambda features, x: combine(f.apply_q(features[0], x), g.apply_q(features[1], x)),
        lambda features, y: combine(f.apply_k(features[0], y), g.apply_k(features[1], y)),
        lambda features, x, y, mask: (f.adapt(features[0], x, y, mask), g.adapt(features[1], x, y, mask)),
        fit_both,
    )


def kernel_estimate(feature_map: FeatureMap, features: Features, x: Array, y: Array) -> Array:
    """The estimated kernel [T, S] of all pairs of x [T, D] and y [S, D], unnormalised.

    `features` is a draw of the map. For maps of the softmax kernel the result is an unbiased estimate of
    exp(x.y). It overflows where exp(x.y) or the scale of features does.
    """
    features = feature_map.adapt(features, x, y, None)
    queries, keys = feature_map.apply_q(features, x), feature_map.apply_k(features, y)
    return reduce(jnp.add, [_dots(a, b) for a, b in zip(queries.blocks, keys.blocks, strict=True)])


def _dots(a: Block, b: Block) -> Array:
    # The dot product of two outer products is the product of the dot products of their factors.
    dots = reduce(jnp.multiply, [p @ q.T for p, q in zip(a.weighted, b.weighted, strict=True)])
    log_a, log_b = (jnp.zeros(()) if c.log_scale is None else c.log_scale for c in (a, b))
    return dots * jnp.exp(log_a[..., None] + log_b)
