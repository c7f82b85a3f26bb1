"""The two operations of linear attention: sums of features over tokens, and their products with features.

The sum over a block of factors R and Phi is the matrix R^T Phi, so no outer product of factors is computed
for a token.
"""

from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.attention.base import Block, ScaledFeatures, outer_values


class Weighted(NamedTuple):
    """A block ready to be summed: its features are weight * outer(narrow, wide).

    Attributes:
      narrow: [..., N], all factors but the widest, or None when there is one factor.
      wide: [..., W], the widest factor.
      weight: [...], at most 1, or None for 1.
      mixing: [N, W], constants that multiply each pair of a narrow and a wide feature, or None for 1.
    """

    narrow: Array | None
    wide: Array
    weight: Array | None
    mixing: NDArray[np.float64] | None


def on_row_scale(queries: ScaledFeatures) -> list[Weighted]:
    """Every row relative to its largest block."""
    if len(queries.blocks) == 1:
        return [_weigh(queries.blocks[0], None)]
    scale = queries.log_scale
    return [_weigh(b, jnp.exp(_log_scale(b, scale) - scale)) for b in queries.blocks]


def on_common_scale(
    keys: ScaledFeatures, mask: Array | None, scale: Array | None = None
) -> tuple[list[Weighted], Array]:
    """Every key relative to the largest block of all unmasked keys; masked keys weigh nothing.

    Args:
      keys: their features.
      mask: bool [S], or None.
      scale: the scale to use instead, such as the largest one among more keys than these.

    Returns:
      the blocks, and the logarithm of the scale; -inf if all keys are masked.
    """
    scales = keys.log_scale if mask is None else jnp.where(mask, keys.log_scale, -jnp.inf)
    largest = jnp.max(scales) if scale is None else scale
    safe = largest if mask is None else jnp.where(jnp.isfinite(largest), largest, 0.0)
    logs = [_log_scale(block, scales) - safe for block in keys.blocks]
    if mask is not None:
        logs = [jnp.where(mask, log, -jnp.inf) for log in logs]
    weighed = [_weigh(block, jnp.exp(log)) for block, log in zip(keys.blocks, logs, strict=True)]
    return weighed, largest


def _log_scale(block: Block, like: Array) -> Array:
    return jnp.zeros_like(like) if block.log_scale is None else block.log_scale


def _weigh(block: Block, weight: Array | None) -> Weighted:
    by_width = sorted(range(len(block.factors)), key=lambda i: block.factors[i].shape[-1])
    *narrow, wide = by_width
    mixing = None
    if any(weights is not None for weights in block.weights):
        constants = [
            np.ones(f.shape[-1]) if w is None else w
            for f, w in zip(block.factors, block.weights, strict=True)
        ]
        mixing = np.outer(reduce(outer_values, [constants[i] for i in narrow], np.ones(1)), constants[wide])
    factor = reduce(outer_values, [block.factors[i] for i in narrow]) if narrow else None
    return Weighted(factor, block.factors[wide], weight, mixing)


def shared(queries: list[Weighted], keys: list[Weighted]) -> list[list[int]]:
    """Groups of blocks with the same narrow factors on both sides, which need only one product."""
    groups: dict[object, list[int]] = {}
    for i, (query, key) in enumerate(zip(queries, keys, strict=True)):
        alone = query.narrow is None or key.narrow is None
        groups.setdefault(i if alone else (id(query.narrow), id(key.narrow)), []).append(i)
    return list(groups.values())


def merged(blocks: list[Weighted], groups: list[list[int]]) -> list[Weighted]:
    """Each group of blocks as one block."""
    return [_merge([blocks[i] for i in group]) for group in groups]


def _merge(blocks: list[Weighted]) -> Weighted:
    """Blocks of one narrow factor as one, their wide factors side by side."""
    if len(blocks) == 1:
        return blocks[0]
    wide = [b.wide if b.weight is None else b.weight[:, None] * b.wide for b in blocks]
    shapes = [(b.narrow.shape[-1], b.wide.shape[-1]) for b in blocks if b.narrow is not None]
    mixing = [
        np.ones(shape) if b.mixing is None else b.mixing for b, shape in zip(blocks, shapes, strict=True)
    ]
    return Weighted(blocks[0].narrow, jnp.concatenate(wide, axis=1), None, np.concatenate(mixing, axis=1))


def sums(blocks: list[Weighted], values: Array) -> list[Array]:
    """Sum of features times values [S, V] over tokens, a matrix [V * N, W] for every block."""
    return [_sum(block, values) for block in blocks]


def _sum(block: Weighted, values: Array) -> Array:
    weighed = values if block.weight is None else block.weight[:, None] * values
    narrow = weighed if block.narrow is None else outer_values(weighed, block.narrow)
    # An einsum here and in `_dot`: for products with transposes, XLA takes two to three times as long.
    total = jnp.einsum("sn,sw->nw", narrow, block.wide)
    return total if block.mixing is None else total * np.tile(block.mixing, (values.shape[1], 1))


def read(blocks: list[Weighted], sums: list[Array]) -> Array:
    """Products of features with the result of `sums`, over all blocks: [T, V]."""
    return reduce(jnp.add, [_dot(block, total) for block, total in zip(blocks, sums, strict=True)])


def _dot(block: Weighted, total: Array) -> Array:
    if block.mixing is not None:
        total = total * np.tile(block.mixing, (len(total) // len(block.mixing), 1))
    dots = jnp.einsum("tw,nw->tn", block.wide, total)
    if block.narrow is not None:
        tokens, width = block.narrow.shape
        # N is the last axis, since onnxruntime sums over a middle axis ten times slower.
        dots = jnp.sum(block.narrow[:, None, :] * dots.reshape(tokens, -1, width), axis=-1)
    return dots if block.weight is None else block.weight[:, None] * dots


@jax.custom_jvp
def quotient(numerators: Array, row_sums: Array) -> Array:
    """Numerators over row sums; those closer to zero than 4.5e-31, in float32, count as that far from it."""
    return numerators / guarded(row_sums, 0.8)


@quotient.defjvp
def _quotient_derivative(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    # The rule of `/` divides by the square of a row sum, which underflows below 1e-19.
    (numerators, row_sums), (change, of_sums) = primals, tangents
    result = quotient(numerators, row_sums)
    return result, quotient(change - result * _where_used(row_sums, of_sums), row_sums)


@jax.custom_jvp
def inverse(row_sums: Array) -> Array:
    """`quotient` of one and row sums."""
    return 1 / guarded(row_sums, 0.8)


@inverse.defjvp
def _inverse_derivative(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    result = inverse(*primals)
    return result, quotient(-result * _where_used(*primals, *tangents), primals[0])


def _where_used(row_sums: Array, tangents: Array) -> Array:
    """Tangents of row sums, 0 where the least distance from zero counts in their place."""
    return jnp.where(guarded(row_sums, 0.8) == row_sums, tangents, 0.0)


def guarded(row_sums: Array, exponent: float = 0.5) -> Array:
    """Row sums at a least distance from zero, the smallest normal number to an exponent, with their signs.

    Features of both signs can have a negative sum. It stays negative, to show that the estimate has failed.
    With the exponent 0.5, only values whose inverse, or its square in a derivative, would overflow change.
    """
    floor = float(jnp.finfo(row_sums.dtype).tiny) ** exponent
    return jnp.where(row_sums < 0, jnp.minimum(row_sums, -floor), jnp.maximum(row_sums, floor))
