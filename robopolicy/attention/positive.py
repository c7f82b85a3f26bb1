"""Positive features: never below zero, exact for opposite vectors, worst for equal ones."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import FeatureMap, ScaledFeatures
from robopolicy.attention.estimator import (
    Estimator,
    Projected,
    from_estimator,
    mean_square_of_sums,
    symmetric,
)
from robopolicy.attention.projections import Coupling, orthogonal


def positive_features(p: Projected) -> ScaledFeatures:
    """exp(-|x|^2/2) / sqrt(m) * exp(omega.x), m features."""
    return exponential(p.along, -p.half_square - math.log(p.omega.shape[0]) / 2)


def positive_antithetic_features(p: Projected) -> ScaledFeatures:
    """exp(-|x|^2/2) / sqrt(2m) * [exp(omega.x), exp(-omega.x)], 2m features (HRF Eq. 3)."""
    exponents = jnp.concatenate([p.along, -p.along], axis=-1)
    return exponential(exponents, -p.half_square - math.log(2 * p.omega.shape[0]) / 2)


def optimal_positive_features(p: Projected, tilt: Array) -> ScaledFeatures:
    """(1 - 4A)^(d/4) / sqrt(m) * exp(A |omega|^2 + sqrt(1 - 4A) omega.x - |x|^2/2) (CRT Eq. 4, 5).

    m features. `tilt` is A, real and below 1/4; if it is negative, the features are bounded in omega.
    """
    m, dim = p.omega.shape
    exponents = tilt * p.omega.squares() + jnp.sqrt(1 - 4 * tilt) * p.along
    return exponential(exponents, dim / 4 * jnp.log(1 - 4 * tilt) - p.half_square - math.log(m) / 2)


def exponential(exponents: Array, log_scale: Array) -> ScaledFeatures:
    """exp(exponents + log_scale), exponents [..., R] and log_scale [...], with values in (0, 1]."""
    peak = jax.lax.stop_gradient(jnp.max(exponents, axis=-1))
    return ScaledFeatures.of(jnp.exp(exponents - peak[..., None]), peak + log_scale)


def optimal_tilt(square: Array | float, dim: int) -> Array:
    """The A of least variance for tokens with mean |x + y|^2 = square (CRT Theorem 3.3).

    Eq. 7 multiplied through by its conjugate, which neither cancels nor divides by zero at square = 0.
    """
    root = jnp.sqrt((2 * square + dim) ** 2 + 8 * dim * square)
    return (1 - (root + 2 * square + dim) / (2 * dim)) / 8


positive_estimator = symmetric(positive_features)
positive_antithetic_estimator = symmetric(positive_antithetic_features)
optimal_positive_estimator = Estimator(
    optimal_positive_features,
    optimal_positive_features,
    constants=partial(optimal_tilt, 2.0),
    adapt=lambda tilt, x, y, mask: optimal_tilt(mean_square_of_sums(x, y, mask), x.shape[1]),
)


def positive(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """One-sided positive features of m vectors, m features (FAVOR+, Choromanski et al. 2021)."""
    return from_estimator(positive_estimator, m, coupling)


def positive_antithetic(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Positive features of +omega and -omega, 2m features of m vectors (HRF Eq. 3)."""
    return from_estimator(positive_antithetic_estimator, m, coupling)


def optimal_positive(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Positive and bounded features of least variance, m of them (OPRF; FAVOR++ with orthogonal vectors).

    Their constant follows the mean of |x + y|^2 over all pairs of tokens (CRT Eq. 7, 8). In causal attention
    it stays that of unit tokens at right angles.
    """
    return from_estimator(optimal_positive_estimator, m, coupling)
