"""The types of every attention mechanism.

Shape letters used throughout this package, for one head without a batch (`jax.vmap` adds both):

    T  queries    S  keys    D  head width    V  value width    R  features    m, n  projection vectors

A feature map estimates the softmax kernel SM(x, y) = exp(x.y), without a temperature, as a dot product of
features. Features carry their scale as a logarithm, so that they neither overflow nor need a constant added.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

Features = Any
"""A pytree of drawn projections and constants: frozen, never trained."""


class Block(NamedTuple):
    """Features exp(log_scale) * outer(factors), where the outer product of a token is not computed.

    Attributes:
      factors: arrays [..., R_f], bounded; the block holds the product of their widths in features.
      log_scale: [...], one per token, or None for features without a scale.
      weights: for each factor, constants [R_f] that multiply its features, or None. Blocks with different
        weights can share a factor. Only queries have weights.
    """

    factors: tuple[Array, ...]
    log_scale: Array | None
    weights: tuple[NDArray[np.float64] | None, ...]

    @property
    def weighted(self) -> tuple[Array, ...]:
        """The factors with their weights."""
        return tuple(f if w is None else f * w for f, w in zip(self.factors, self.weights, strict=True))

    @property
    def values(self) -> Array:
        """[..., R]: the factors multiplied out."""
        return reduce(outer_values, self.weighted)


class ScaledFeatures(NamedTuple):
    """Features of the tokens of one side: `values * exp(log_scale)`, held as one or more blocks.

    A sum of kernels has the blocks of all of them, each on its own scale. A product of kernels has the
    factors of all of them. Both are free until features are summed over tokens (see linear.py).
    """

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, values: Array, log_scale: Array | None = None) -> ScaledFeatures:
        """One block of one factor: values [..., R], bounded, and log_scale [...]."""
        return cls((Block((values,), log_scale, (None,)),))

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return self.blocks[0].factors[0].shape[0]

    @property
    def log_scale(self) -> Array:
        """[...]: the largest scale of any block, a constant to differentiation."""
        common = _common_scale(self.blocks)
        return jnp.zeros(self.blocks[0].factors[0].shape[:-1]) if common is None else common

    @property
    def values(self) -> Array:
        """[..., R]: all features written out, on the common scale `log_scale`."""
        common = _common_scale(self.blocks)
        if common is None:
            return jnp.concatenate([block.values for block in self.blocks], axis=-1)
        shares = [jnp.exp(-common if b.log_scale is None else b.log_scale - common) for b in self.blocks]
        return jnp.concatenate(
            [b.values * s[..., None] for b, s in zip(self.blocks, shares, strict=True)], -1
        )

    def joined(self) -> ScaledFeatures:
        """The same features as one block of one factor."""
        return ScaledFeatures.of(self.values, _common_scale(self.blocks))


def outer_values(a: Any, b: Any) -> Any:
    """Outer product per token: [..., A] and [..., B] to [..., A*B], of arrays of either library."""
    product = a[..., :, None] * b[..., None, :]
    return product.reshape(*product.shape[:-2], a.shape[-1] * b.shape[-1])


def _common_scale(blocks: tuple[Block, ...]) -> Array | None:
    scales = [block.log_scale for block in blocks if block.log_scale is not None]
    if not scales:
        return None
    if len(scales) < len(blocks):
        scales.append(jnp.zeros_like(scales[0]))
    # What is subtracted here is added elsewhere, so its derivative cancels: do not compute it.
    return jax.lax.stop_gradient(reduce(jnp.maximum, scales))


Fit = Callable[[Array, Array, Array], Features]
"""(key, x[T, D], y[S, D]) -> features drawn for queries and keys like x and y."""


def unchanged(features: Features, x: Array, y: Array, mask: Array | None) -> Features:
    """The `adapt` of maps whose constants do not depend on data."""
    return features


class FeatureMap(NamedTuple):
    """An unbiased estimator of a kernel K(x, y) as a dot product of features, as pure functions.

    Attributes:
      init: (key, dim) -> features, the random draws for tokens of width `dim` and about unit length.
      apply_q: (features, x[T, D]) -> ScaledFeatures of the queries.
      apply_k: (features, y[S, D]) -> ScaledFeatures of keys, in blocks and factors as wide as queries'.
      adapt: (features, x[T, D], y[S, D], mask) -> features with the constants that suit these tokens. Part of
        attention and cheap; the map is unbiased with and without it. Masked keys do not count.
      fit: (key, x[T, D], y[S, D]) -> features drawn for data like these, which may be slow; None for maps
        that do not improve with data. See `fit`.
    """

    init: Callable[[Array, int], Features]
    apply_q: Callable[[Features, Array], ScaledFeatures]
    apply_k: Callable[[Features, Array], ScaledFeatures]
    adapt: Callable[[Features, Array, Array, Array | None], Features] = unchanged
    fit: Fit | None = None


def fit(feature_map: FeatureMap, key: Array, x: Array, y: Array) -> Features:
    """Draw features for data like x [T, D] and y [S, D]; maps that do not depend on data draw as in `init`.

    Do not compile it: it may run k-means or an optimiser. Raises ValueError for data of the wrong shape, and,
    if the map depends on data, for numbers that are not finite.
    """
    check_inputs(x, y, None, None)
    return feature_map.fit(key, x, y) if feature_map.fit else feature_map.init(key, x.shape[1])


def check_finite(x: Array, y: Array) -> None:
    """Raise ValueError unless data that features follow are finite."""
    for name, tokens in (("x", x), ("y", y)):
        if not np.isfinite(np.asarray(tokens, np.float32)).all():
            raise ValueError(f"{name} has numbers that are not finite: features cannot fit them")


class Attention(NamedTuple):
    """Row-normalised attention of one head, exact or estimated.

    Attributes:
      init: (key, head_dim) -> features; `()` for exact softmax. A new key redraws.
      apply: (features, q[T, D], k[S, D], v[S, V], mask=None) -> [T, V]; the weights of a row sum to one.
      rank: (features, q[T, D], k[S, D], mask=None) -> [S]; column sums of the row-normalised matrix.
      causal: like `apply` with T = S, but query i attends to keys 0 to i only.
      denominators: (features, q[T, D], k[S, D], mask=None) -> [T]; the row sums, each on a positive scale of
        its own. A value that is not above zero means that the estimate has failed. With a value between 0 and
        4.5e-31 (float32), the weights of a row sum to less than one, and its share of the ranks is smaller.
      fit: (key, q[T, D], k[S, D]) -> features drawn for data like these.

    `mask` is bool [S]; False removes a key from numerator and denominator alike, and gives it rank 0. With
    every key masked, all results are 0. Queries have no mask: maps with `adapt` suit all of them, so queries
    that are padding must be finite, best copies of real ones. Wrong shapes raise ValueError.
    """

    init: Callable[[Array, int], Features]
    apply: Callable[..., Array]
    rank: Callable[..., Array]
    causal: Callable[..., Array]
    denominators: Callable[..., Array]
    fit: Fit


def check_inputs(q: Array, k: Array, v: Array | None, mask: Array | None) -> None:
    """Raise ValueError, in one line, unless q, k, v and mask are the arrays of one head."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if array is not None and array.ndim != 2:
            raise ValueError(
                f"{name} has shape {array.shape}; one head takes [tokens, width], use jax.vmap for more"
            )
        if array is not None and not len(array):
            raise ValueError(f"{name} has shape {array.shape}; it must have one token or more")
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q has width {q.shape[1]} and k has width {k.shape[1]}; they must be equal")
    if v is not None and v.shape[0] != k.shape[0]:
        raise ValueError(f"v has {v.shape[0]} tokens and k has {k.shape[0]}; they must be equal")
    if mask is not None and (mask.shape != k.shape[:1] or mask.dtype != jnp.bool_):
        raise ValueError(
            f"mask is {mask.dtype}{list(mask.shape)}; it must be bool[{k.shape[0]}], one entry per key"
        )


def widened(*arrays: Array) -> list[Array]:
    """Arrays of 16 bits and of integers in float32, wider floats as they are.

    exp(|x|^2 / 2) in 16 bits has large errors.
    """
    return [array.astype(jnp.promote_types(array.dtype, jnp.float32)) for array in arrays]


def check_causal(q: Array, k: Array, v: Array, mask: Array | None) -> None:
    """Raise ValueError, in one line, unless q, k, v and mask are the arrays of one causal head."""
    check_inputs(q, k, v, mask)
    if len(q) != len(k):
        raise ValueError(f"q has {len(q)} tokens and k has {len(k)}; causal attention needs as many of both")
