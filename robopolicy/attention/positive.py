"""Positive features: never below zero, exact for opposite vectors when antithetic, worst for equal ones."""

import math

import jax
import jax.numpy as jnp

from robopolicy.attention.base import FeatureMap, ScaledFeatures
from robopolicy.attention.projections import Coupling, Projected, from_estimator, orthogonal


def positive_features(p: Projected) -> ScaledFeatures:
    """exp(-|x|^2/2) / sqrt(m) * exp(omega.x), m features."""
    peak = jax.lax.stop_gradient(jnp.max(p.along, axis=-1))
    values = jnp.exp(p.along - peak[..., None])
    return ScaledFeatures.of(values, peak - p.half_square - math.log(p.omega.shape[0]) / 2)


def positive_antithetic_features(p: Projected) -> ScaledFeatures:
    """exp(-|x|^2/2) / sqrt(2m) * [exp(omega.x), exp(-omega.x)], 2m features (HRF Eq. 3)."""
    peak = jax.lax.stop_gradient(jnp.max(jnp.abs(p.along), axis=-1))
    exponents = jnp.concatenate([p.along, -p.along], axis=-1)
    values = jnp.exp(exponents - peak[..., None])
    return ScaledFeatures.of(values, peak - p.half_square - math.log(2 * p.omega.shape[0]) / 2)


def positive(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """One-sided positive features of m vectors, m features (FAVOR+, Choromanski et al. 2021)."""
    return from_estimator(positive_features, m, coupling)


def positive_antithetic(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Positive features of +omega and -omega, 2m features of m vectors (HRF Eq. 3)."""
    return from_estimator(positive_antithetic_features, m, coupling)
