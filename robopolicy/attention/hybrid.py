"""Hybrid estimators: sums of base estimators, with weights for each pair that are kernels themselves.

    SM^(x, y) = sum_k lambda_k(x, y) SM_k(x, y) + (1 - sum_k lambda_k(x, y)) SM_last(x, y)        (HRF Eq. 8)

with every lambda_k a constant plus a kernel. The sum is unbiased if the base estimators are. It is precise
where each lambda gives most weight to an estimator that is precise there. Hybrids with estimators for
clusters of the data are in clustered.py.
"""

from collections.abc import Callable, Sequence
from math import expm1, sqrt
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
from robopolicy.attention.projections import (
    Coupling,
    Projection,
    along,
    check_counts,
    check_positive,
    orthogonal,
)
from robopolicy.attention.trigonometric import trigonometric_estimator

LEAST_PRODUCT = 1e-3  # of sigma and radius: with less, rounding in float32 dominates the error
RAMP = 3e-4  # of tau.x, for tokens of about unit length: a thousand times its rounding error


class Coefficient(NamedTuple):
    """lambda(x, y) = constant + kernel(x, y), HRF Eq. 9."""

    constant: float
    kernel: FeatureMap


class HybridFeatures(NamedTuple):
    """The draws of a hybrid: features of each coefficient, and those of the base estimators."""

    coefficients: tuple[Features, ...]
    estimators: Features


def hybrid(coefficients: Sequence[Coefficient], estimators: Estimators) -> FeatureMap:
    """Eq. 8 for p coefficients and p + 1 base estimators; the last of them has the remaining weight.

    Each lambda is drawn once and used both in its own term and in the remainder. The features are
    HybridFeatures, with independent draws for every coefficient and for the base estimators.
    """
    constants, kernels = [c.constant for c in coefficients], [c.kernel for c in coefficients]

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
        # lambda and 1 - lambda weigh the same features [1, rho], which are then summed only once.
        (a,), (rho,) = constants, rhos
        joined = _affine(constant_q(1.0, tokens), rho)
        ones = [1.0] * (joined.blocks[0].factors[0].shape[-1] - 1)
        rest = weigh([1 - a, *(-1.0 for _ in ones)], joined)
        return _weighted([weigh([a, *ones], joined)], rest, estimates)
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
    # One factor instead of a block each: one matrix product then multiplies coefficient and estimator.
    return concatenate(constant, *kernels).joined()


def _weighted(
    lambdas: Sequence[ScaledFeatures], rest: ScaledFeatures, estimates: Sequence[ScaledFeatures]
) -> ScaledFeatures:
    """sum_k lambda_k K_k + rest K_last, on the features of one side."""
    *first, last = estimates
    terms = [outer(weight, estimate) for weight, estimate in zip(lambdas, first, strict=True)]
    return concatenate(*terms, outer(rest, last))


def signs(n: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """sgn(tau.x) / sqrt(2n), n features: the kernel 1/2 - angle(x, y)/pi (HRF Eq. 42).

    Where |tau.x| < RAMP, the sign is tau.x / RAMP: rounding would decide at a jump, and differs between
    runtimes. A hybrid is unbiased with any coefficient. The derivative is taken as zero, that of a sign.
    """

    def features(along_tau: Array) -> Array:
        height = 1 / sqrt(2 * n)
        limit = along_tau.dtype.type(height)
        return jax.lax.stop_gradient(jax.lax.clamp(-limit, along_tau * (height / RAMP), limit))

    return _projected(n, coupling, features)


def waves(n: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """[sin(tau.x), cos(tau.x)] / sqrt(n), 2n features: the Gaussian kernel exp(-|x - y|^2/2) (HRF Eq. 70)."""
    return _projected(n, coupling, lambda along_tau: wave_features(along_tau) / sqrt(n))


def wave_features(angles: Array) -> Array:
    """[sin, cos] of angles [T, n], [T, 2n]."""
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def _projected(n: int, coupling: Coupling, features: Callable[[Array], Array]) -> FeatureMap:
    """The map of `features` of tau.x [T, n], the same for queries and keys."""
    check_counts(n=n)

    def apply(tau: Projection, x: Array) -> ScaledFeatures:
        return ScaledFeatures.of(features(along(tau, x)))

    return FeatureMap(lambda key, dim: coupling(key, n, dim), apply, apply)


def angular_hybrid(
    m: int, n: int, coupling: Coupling = orthogonal, base: Estimator = positive_antithetic_estimator
) -> FeatureMap:
    """The angular hybrid: weight lambda = angle/pi for `base`, the rest for the trigonometric estimator.

    For vectors of equal length the variance is zero at angle 0, where the trigonometric estimator is exact
    and lambda is 0, and at angle pi, where the positive one is exact and lambda is 1.

    Args:
      m: vectors omega, shared by the two base estimators (HRF Theorem 3.1, second part).
      n: vectors tau of lambda, drawn independently of omega.
      coupling: of the vectors of each set.
      base: the positive estimator. The hybrid has 4m(n + 1) features with positive_antithetic_estimator,
        3m(n + 1) with one-sided ones.

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
    """The normalised Gaussian hybrid: weight lambda = (1 - exp(-sigma^2 |x - y|^2/2)) / rho for `base`.

    rho = 1 - exp(-2 sigma^2 radius^2) makes lambda 1 for opposite vectors of length `radius`; the estimate is
    unbiased at any length. Trigonometric features estimate lambda, so the variance is zero at angle 0, but
    not at pi. There are 4m(2n + 1) features with a two-sided base.

    Raises ValueError for a sigma or radius outside [1e-9, 1e9], and for a product below
    LEAST_PRODUCT.

    Source: HRF Eq. 67 to 70, Appendix F.
    """
    check_positive(sigma=sigma, radius=radius)
    if sigma * radius < LEAST_PRODUCT:
        raise ValueError(
            f"sigma is {sigma!r} and radius {radius!r}: their product must be {LEAST_PRODUCT:g} or more"
        )
    rho = -expm1(-2 * (sigma * radius) * (sigma * radius))
    away = Coefficient(1 / rho, scale(-1 / rho, warp(waves(n, coupling), sigma, sigma)))
    return hybrid([away], shared([base, trigonometric_estimator], m, coupling))


def gaussian_coefficient(n: int, M: float | Array, c: float, coupling: Coupling = orthogonal) -> Coefficient:
    """lambda(x, y) = exp(-|x + M y|^2 / (2 c^2)), which is 1 where x = -M y (HRF Eq. 20).

    It has 2n trigonometric features, so its estimate stays in [-1, 1]. M is a number or a matrix [D, D].
    Raises ValueError for a c outside [1e-9, 1e9].
    """
    check_positive(c=c)
    return Coefficient(0.0, warp(waves(n, coupling), 1 / c, -M / c))
