"""Hybrid estimators: base estimators weighted, pair by pair, by coefficients that are kernels themselves.

    SM^(x, y) = sum_k lambda_k(x, y) SM_k(x, y) + (1 - sum_k lambda_k(x, y)) SM_last(x, y)        (HRF Eq. 8)

with every lambda_k a constant plus a kernel. It is unbiased whenever the base estimators are, and precise
wherever each lambda puts its weight on an estimator that is precise there.
"""

from collections.abc import Callable, Sequence
from math import sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.algebra import concatenate, constant_k, constant_q, outer, scale, signed
from robopolicy.attention.base import FeatureMap, Features, ScaledFeatures
from robopolicy.attention.positive import positive_antithetic_features
from robopolicy.attention.projections import Coupling, Estimator, along, orthogonal, project
from robopolicy.attention.trigonometric import trigonometric_features


class Coefficient(NamedTuple):
    """lambda(x, y) = constant + kernel(x, y), HRF Eq. 9."""

    constant: float
    kernel: FeatureMap


class Estimators(NamedTuple):
    """Base estimators of one kernel, evaluated together so that they may share draws and projections.

    Attributes:
      init: (key, dim) -> features.
      apply_q: (features, x[T, D]) -> the features of every estimator, in order.
      apply_k: (features, y[S, D]) -> the same for keys.
    """

    init: Callable[[Array, int], Features]
    apply_q: Callable[[Features, Array], tuple[ScaledFeatures, ...]]
    apply_k: Callable[[Features, Array], tuple[ScaledFeatures, ...]]


class HybridFeatures(NamedTuple):
    """What a hybrid draws: one set of features a coefficient, and those of the base estimators."""

    coefficients: tuple[Features, ...]
    estimators: Features


def shared(estimators: Sequence[Estimator], m: int, coupling: Coupling) -> Estimators:
    """Estimators that see a token through the same m vectors, drawn and projected on once."""

    def apply(omega: Array, x: Array) -> tuple[ScaledFeatures, ...]:
        projected = project(omega, x)
        return tuple(estimator(projected) for estimator in estimators)

    return Estimators(lambda key, dim: coupling(key, m, dim), apply, apply)


def hybrid(coefficients: Sequence[Coefficient], estimators: Estimators) -> FeatureMap:
    """Eq. 8 for p coefficients and p + 1 base estimators; the last of them takes the remaining weight.

    Each lambda is drawn once and used both in its own term and in the remainder. Its features are
    HybridFeatures; coefficients and base estimators are drawn independently of one another.
    """

    def init(key: Array, dim: int) -> HybridFeatures:
        estimators_key, *keys = jax.random.split(key, 1 + len(coefficients))
        kernels = tuple(c.kernel.init(k, dim) for c, k in zip(coefficients, keys, strict=True))
        return HybridFeatures(kernels, estimators.init(estimators_key, dim))

    def apply_q(features: HybridFeatures, x: Array) -> ScaledFeatures:
        rhos = [c.kernel.apply_q(f, x) for c, f in zip(coefficients, features.coefficients, strict=True)]
        # 1 - sum(a_k + rho_k) as one constant and the negated kernels: HRF Lemma 2.3, groups 3 and 4.
        lambdas = [
            _affine(constant_q(c.constant, len(x)), r) for c, r in zip(coefficients, rhos, strict=True)
        ]
        rest = _affine(constant_q(remainder, len(x)), *(signed(-1.0, r) for r in rhos))
        return _weighted(lambdas, rest, estimators.apply_q(features.estimators, x))

    def apply_k(features: HybridFeatures, y: Array) -> ScaledFeatures:
        rhos = [c.kernel.apply_k(f, y) for c, f in zip(coefficients, features.coefficients, strict=True)]
        lambdas = [
            _affine(constant_k(c.constant, len(y)), r) for c, r in zip(coefficients, rhos, strict=True)
        ]
        rest = _affine(constant_k(remainder, len(y)), *rhos)
        return _weighted(lambdas, rest, estimators.apply_k(features.estimators, y))

    remainder = 1.0 - sum(c.constant for c in coefficients)
    return FeatureMap(init, apply_q, apply_k)


def _affine(constant: ScaledFeatures, *kernels: ScaledFeatures) -> ScaledFeatures:
    # One factor, not a block each: the coefficient then meets its estimator in a single matrix product.
    return concatenate(constant, *kernels).joined()


def _weighted(
    lambdas: Sequence[ScaledFeatures], rest: ScaledFeatures, estimates: tuple[ScaledFeatures, ...]
) -> ScaledFeatures:
    """sum_k lambda_k K_k + rest K_last, on the features of one side."""
    *first, last = estimates
    terms = [outer(weight, estimate) for weight, estimate in zip(lambdas, first, strict=True)]
    return concatenate(*terms, outer(rest, last))


def signs(n: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """sgn(tau.x) / sqrt(2n), n features: the kernel 1/2 - angle(x, y)/pi (HRF Eq. 42)."""

    def apply(tau: Array, x: Array) -> ScaledFeatures:
        return ScaledFeatures.of(jnp.sign(along(tau, x)) / sqrt(2 * n))

    return FeatureMap(lambda key, dim: coupling(key, n, dim), apply, apply)


def angular_hybrid(
    m: int, n: int, coupling: Coupling = orthogonal, base: Estimator = positive_antithetic_features
) -> FeatureMap:
    """The angular hybrid: lambda = angle/pi on the positive estimator, the rest on the trigonometric one.

    Between vectors of one length its variance is zero at angle 0, where the trigonometric estimator is exact
    and lambda is 0, and at angle pi, where the positive one is exact and lambda is 1.

    Args:
      m: vectors omega, shared by the two base estimators (HRF Theorem 3.1, second part).
      n: vectors tau of lambda, drawn independently of omega.
      coupling: how the vectors of each set depend on one another.
      base: the positive estimator; positive_antithetic_features makes 4m(n + 1) features of the whole,
        positive_features 3m(n + 1).

    Source: HRF Eq. 12 and 19, section 2.4.
    """
    angle = Coefficient(0.5, scale(-1.0, signs(n, coupling)))
    return hybrid([angle], shared([base, trigonometric_features], m, coupling))
