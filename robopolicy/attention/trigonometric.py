"""Trigonometric features: exact for equal vectors, worst for opposite ones."""

import math

import jax.numpy as jnp

from robopolicy.attention.base import FeatureMap, ScaledFeatures
from robopolicy.attention.projections import Coupling, Projected, from_estimator, orthogonal


def trigonometric_features(p: Projected) -> ScaledFeatures:
    """exp(|x|^2/2) / sqrt(m) * [sin(omega.x), cos(omega.x)], 2m features (HRF Eq. 2)."""
    values = jnp.concatenate([jnp.sin(p.along), jnp.cos(p.along)], axis=-1)
    return ScaledFeatures.of(values, p.half_square - math.log(p.omega.shape[0]) / 2)


def trigonometric(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Random Fourier features of m vectors, 2m features (Rahimi & Recht; HRF Eq. 2)."""
    return from_estimator(trigonometric_features, m, coupling)
