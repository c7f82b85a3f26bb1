"""Hybrid estimators: base estimators weighted, pair by pair, by coefficients that are kernels themselves.

    SM^(x, y) = sum_k lambda_k(x, y) SM_k(x, y) + (1 - sum_k lambda_k(x, y)) SM_last(x, y)        (HRF Eq. 8)

with every lambda_k a constant plus a kernel. It is unbiased whenever the base estimators are, and precise
wherever each lambda puts its weight on an estimator that is precise there. Clustered hybrids, whose
estimators are made for the data, are in clustered.py.
"""

from collections.abc import Sequence
from math import expm1, isfinite, sqrt
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.algebra import (
    concatenate,
    constant_k,
    constant_q,
    outer,
    scale,
    signed,
    warp,
    weigh,
)
from robopolicy.attention.base import FeatureMap, Features, ScaledFeatures, fit
from robopolicy.attention.estimator import Estimator, Estimators, shared
from robopolicy.attention.positive import positive_antithetic_estimator
from robopolicy.attention.projections import Coupling, Projection, along, check_counts, orthogonal
from robopolicy.attention.trigonometric import trigonometric_estimator


class Coefficient(NamedTuple):
    """lambda(x, y) = constant + kernel(x, y), HRF Eq. 9."""

    constant: float
    kernel: FeatureMap


class HybridFeatures(NamedTuple):
    """What a hybrid draws: one set of features a coefficient, and those of the base estimators."""

    coefficients: tuple[Features, ...]
    estimators: Features


def hybrid(coefficients: Sequence[Coefficient], estimators: Estimators) -> FeatureMap:
    """Eq. 8 for p coefficients and p + 1 base estimators; the last of them takes the remaining weight.

    Each lambda is drawn once and used both in its own term and in the remainder. Its features are
    HybridFeatures; coefficients and base estimators are drawn independently of one another.
    """
    constants = [c.constant for c in coefficients]
    kernels = [c.kernel for c in coefficients]

    def init(key: Array, dim: int) -> HybridFeatures:
        estimators_key, *keys = jax.random.split(key, 1 + len(kernels))
        drawn = tuple(kernel.init(k, dim) for kernel, k in zip(kernels, keys, strict=True))
        return HybridFeatures(drawn, estimators.init(estimators_key, dim))

    def fit_all(key: Array, x: Array, y: Array) -> HybridFeatures:
        estimators_key, *keys = jax.random.split(key, 1 + len(kernels))
        drawn = tuple(fit(kernel, k, x, y) for kernel, k in zip(kernels, keys, strict=True))
        return HybridFeatures(drawn, estimators.fit(estimators_key, x, y))

    def adapt(features: HybridFeatures, x: Array, y: Array, mask: Array | None) -> HybridFeatures:
        each = zip(kernels, features.coefficients, strict=True)
        adapted = tuple(kernel.adapt(f, x, y, mask) for kernel, f in each)
        return HybridFeatures(adapted, estimators.adapt(features.estimators, x, y, mask))

    def apply_q(features: HybridFeatures, x: Array) -> ScaledFeatures:
        rhos = [kernel.apply_q(f, x) for kernel, f in zip(kernels, features.coefficients, strict=True)]
        return combine_q(constants, rhos, estimators.apply_q(features.estimators, x))

    def apply_k(features: HybridFeatures, y: Array) -> ScaledFeatures:
        rhos = [kernel.apply_k(f, y) for kernel, f in zip(kernels, features.coefficients, strict=True)]
        return combine_k(constants, rhos, estimators.apply_k(features.estimators, y))

    return FeatureMap(init, apply_q, apply_k, adapt, fit_all)


def combine_q(
    constants: Sequence[float], rhos: Sequence[ScaledFeatures], estimates: Sequence[ScaledFeatures]
) -> ScaledFeatures:
    """The query side of Eq. 8, from lambda_k = constants[k] + rhos[k] and features of the base estimators."""
    tokens = estimates[0].tokens
    if _bipolar(constants):
        # lambda and 1 - lambda are weights of the same features [1, rho], which are summed once.
        (a,), (rho,) = constants, rhos
        joined = _affine(constant_q(1.0, tokens), rho)
        ones = [1.0] * (joined.blocks[0].factors[0].shape[-1] - 1)
        return _weighted(
            [weigh([a, *ones], joined)], weigh([1 - a, *(-1.0 for _ in ones)], joined), estimates
        )
    lambdas = [_affine(constant_q(c, tokens), rho) for c, rho in zip(constants, rhos, strict=True)]
    # 1 - sum(a_k + rho_k) as one constant and the negated kernels: HRF Lemma 2.3, groups 3 and 4.
    rest = _affine(constant_q(1.0 - sum(constants), tokens), *(signed(-1.0, rho) for rho in rhos))
    return _weighted(lambdas, rest, estimates)


def combine_k(
    constants: Sequence[float], rhos: Sequence[ScaledFeatures], estimates: Sequence[ScaledFeatures]
) -> ScaledFeatures:
    """The key side of Eq. 8."""
    tokens = estimates[0].tokens
    if _bipolar(constants):
        joined = _affine(constant_k(1.0, tokens), *rhos)
        return _weighted([joined], joined, estimates)
    lambdas = [_affine(constant_k(c, tokens), rho) for c, rho in zip(constants, rhos, strict=True)]
    return _weighted(lambdas, _affine(constant_k(1.0 - sum(constants), tokens), *rhos), estimates)


def _bipolar(constants: Sequence[float]) -> bool:
    """Whether there is one coefficient, with a constant of its own and one in the remainder."""
    return len(constants) == 1 and constants[0] not in (0.0, 1.0)


def _affine(constant: ScaledFeatures, *kernels: ScaledFeatures) -> ScaledFeatures:
    # One factor, not a block each: the coefficient then meets its estimator in a single matrix product.
    return concatenate(constant, *kernels).joined()


def _weighted(
    lambdas: Sequence[ScaledFeatures], rest: ScaledFeatures, estimates: Sequence[ScaledFeatures]
) -> ScaledFeatures:
    """sum_k lambda_k K_k + rest K_last, on the features of one side."""
    *first, last = estimates
    terms = [outer(weight, estimate) for weight, estimate in zip(lambdas, first, strict=True)]
    return concatenate(*terms, outer(rest, last))


def signs(n: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """sgn(tau.x) / sqrt(2n), n features: the kernel 1/2 - angle(x, y)/pi (HRF Eq. 42)."""
    check_counts(n=n)

    def apply(tau: Projection, x: Array) -> ScaledFeatures:
        return ScaledFeatures.of(jnp.sign(along(tau, x)) / sqrt(2 * n))

    return FeatureMap(lambda key, dim: coupling(key, n, dim), apply, apply)


def waves(n: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """[sin(tau.x), cos(tau.x)] / sqrt(n), 2n features: the Gaussian kernel exp(-|x - y|^2/2) (HRF Eq. 70)."""
    check_counts(n=n)

    def apply(tau: Projection, x: Array) -> ScaledFeatures:
        angles = along(tau, x)
        return ScaledFeatures.of(jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1) / sqrt(n))

    return FeatureMap(lambda key, dim: coupling(key, n, dim), apply, apply)


def angular_hybrid(
    m: int, n: int, coupling: Coupling = orthogonal, base: Estimator = positive_antithetic_estimator
) -> FeatureMap:
    """The angular hybrid: lambda = angle/pi on the positive estimator, the rest on the trigonometric one.

    Between vectors of one length its variance is zero at angle 0, where the trigonometric estimator is exact
    and lambda is 0, and at angle pi, where the positive one is exact and lambda is 1.

    Args:
      m: vectors omega, shared by the two base estimators (HRF Theorem 3.1, second part).
      n: vectors tau of lambda, drawn independently of omega.
      coupling: how the vectors of each set depend on one another.
      base: the positive estimator; positive_antithetic_estimator makes 4m(n + 1) features of the whole,
        one-sided ones 3m(n + 1).

    Source: HRF Eq. 12 and 19, section 2.4.
    """
    angle = Coefficient(0.5, scale(-1.0, signs(n, coupling)))
    return hybrid([angle], shared([base, trigonometric_estimator], m, coupling))


def gaussian_hybrid(
    m: int,
    n: int,
    coupling: Coupling = orthogonal,
    base: Estimator = positive_antithetic_estimator,
    sigma: float = 1.0,
    radius: float = 1.0,
) -> FeatureMap:
    """The normalised Gaussian hybrid: lambda = (1 - exp(-sigma^2 |x - y|^2/2)) / rho on the positive one.

    rho = 1 - exp(-2 sigma^2 radius^2) makes lambda 1 for opposite vectors of length `radius`. With lambda
    made of trigonometric features, the variance is zero at angle 0 but not at pi. 4m(2n + 1) features with a
    two-sided base. Vectors of other lengths are estimated as well, without bias.

    Raises ValueError for a sigma or radius that is not positive and finite.

    Source: HRF Eq. 67 to 70, Appendix F.
    """
    for name, value in (("sigma", sigma), ("radius", radius)):
        if not (isfinite(value) and value > 0):
            raise ValueError(f"{name} is {value}: it must be a finite number above 0")
    rho = -expm1(-2 * (sigma * radius) ** 2)
    away = Coefficient(1 / rho, scale(-1 / rho, warp(waves(n, coupling), sigma, sigma)))
    return hybrid([away], shared([base, trigonometric_estimator], m, coupling))


def gaussian_coefficient(n: int, M: float | Array, c: float, coupling: Coupling = orthogonal) -> Coefficient:
    """lambda(x, y) = exp(-|x + M y|^2 / (2 c^2)), which is 1 where x = -M y (HRF Eq. 20).

    Estimated by trigonometric features, 2n of them, which never leave [-1, 1]. M is a number or a matrix [D,
    D]. Raises ValueError for a c that is not positive.
    """
    if not (isfinite(c) and c > 0):
        raise ValueError(f"c is {c}: it must be a finite number above 0")
    return Coefficient(0.0, warp(waves(n, coupling), 1 / c, -M / c))
