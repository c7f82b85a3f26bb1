"""Base estimators: estimators of exp(x.y) from one set of projection vectors.

An estimator sees a token through its projection only, so several estimators can share one projection. Its
constants hold everything else that depends on data, such as a fitted exponent.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import FeatureMap, Features, Fit, ScaledFeatures, unchanged
from robopolicy.attention.projections import Coupling, Projection, along, check_counts


class Projected(NamedTuple):
    """Projections of tokens, computed once for all estimators that share the vectors.

    Attributes:
      omega: the m projection vectors.
      along: [T, m], omega.x.
      half_square: [T], |x|^2 / 2.
    """

    omega: Projection
    along: Array
    half_square: Array


class Estimator(NamedTuple):
    """A base estimator of the softmax kernel on projected tokens.

    Attributes:
      q: (projected, constants) -> features of the queries.
      k: the same for keys.
      constants: dim -> constants for tokens of unit length, for use without data.
      adapt: (constants, x[T, D], y[S, D], mask) -> constants for these tokens; cheap, a part of attention.
      fit: (x[T, D], y[S, D]) -> constants for data like these; slow, never a part of attention.
    """

    q: Callable[[Projected, Features], ScaledFeatures]
    k: Callable[[Projected, Features], ScaledFeatures]
    constants: Callable[[int], Features] = lambda dim: ()
    adapt: Callable[[Features, Array, Array, Array | None], Features] = unchanged
    fit: Callable[[Array, Array], Features] | None = None


def symmetric(features: Callable[[Projected], ScaledFeatures]) -> Estimator:
    """The estimator with the same features for queries and keys, and without constants."""

    def side(projected: Projected, constants: Features) -> ScaledFeatures:
        return features(projected)

    return Estimator(side, side)


class Drawn(NamedTuple):
    """Features of estimators that share their vectors: the projection, and the constants of each."""

    omega: Projection
    constants: tuple[Features, ...]


class Estimators(NamedTuple):
    """Base estimators of one kernel that share draws and projections.

    Attributes:
      init, adapt, fit: as those of FeatureMap.
      apply_q: (features, x[T, D]) -> the features of every estimator, in order.
      apply_k: (features, y[S, D]) -> the same for keys.
    """

    init: Callable[[Array, int], Features]
    apply_q: Callable[[Features, Array], tuple[ScaledFeatures, ...]]
    apply_k: Callable[[Features, Array], tuple[ScaledFeatures, ...]]
    adapt: Callable[[Features, Array, Array, Array | None], Features]
    fit: Fit


def shared(estimators: Sequence[Estimator], m: int, coupling: Coupling) -> Estimators:
    """Estimators that share one draw of m vectors and one projection on them."""
    check_counts(m=m)

    def init(key: Array, dim: int) -> Drawn:
        return Drawn(coupling(key, m, dim), tuple(e.constants(dim) for e in estimators))

    def adapt(features: Drawn, x: Array, y: Array, mask: Array | None) -> Drawn:
        adapted = [e.adapt(c, x, y, mask) for e, c in zip(estimators, features.constants, strict=True)]
        return features._replace(constants=tuple(adapted))

    def fit(key: Array, x: Array, y: Array) -> Drawn:
        dim = x.shape[1]
        fitted = [e.fit(x, y) if e.fit else e.constants(dim) for e in estimators]
        return Drawn(coupling(key, m, dim), tuple(fitted))

    def apply_q(features: Drawn, x: Array) -> tuple[ScaledFeatures, ...]:
        projected = project(features.omega, x)
        return tuple(e.q(projected, c) for e, c in zip(estimators, features.constants, strict=True))

    def apply_k(features: Drawn, y: Array) -> tuple[ScaledFeatures, ...]:
        projected = project(features.omega, y)
        return tuple(e.k(projected, c) for e, c in zip(estimators, features.constants, strict=True))

    return Estimators(init, apply_q, apply_k, adapt, fit)


def from_estimator(estimator: Estimator, m: int, coupling: Coupling) -> FeatureMap:
    """The feature map of one base estimator on m vectors of its own."""
    alone = shared([estimator], m, coupling)
    return FeatureMap(
        alone.init,
        lambda features, x: alone.apply_q(features, x)[0],
        lambda features, y: alone.apply_k(features, y)[0],
        alone.adapt,
        alone.fit,
    )


def project(omega: Projection, x: Array) -> Projected:
    """Project tokens x [T, D] on m vectors. Raises ValueError if the widths differ."""
    return Projected(omega, along(omega, x), jnp.sum(x * x, axis=-1) / 2)


def mean_square_of_sums(x: Array, y: Array, mask: Array | None, sign: float | Array = 1.0) -> Array:
    """Mean of |x + sign * y|^2 over all pairs of queries and unmasked keys, in O((T + S) D) (CRT Eq. 8)."""
    weight = jnp.ones(len(y)) if mask is None else mask.astype(y.dtype)
    share = weight / jnp.maximum(jnp.sum(weight), 1)
    cross = jnp.mean(x, axis=0) @ (share @ y)
    return jnp.mean(jnp.sum(x * x, axis=-1)) + 2 * sign * cross + share @ jnp.sum(y * y, axis=-1)
