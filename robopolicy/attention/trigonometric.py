"""Trigonometric features: exact for equal vectors, worst for opposite ones."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import FeatureMap, ScaledFeatures
from robopolicy.attention.estimator import Projected, from_estimator, project, symmetric
from robopolicy.attention.projections import Coupling, Projection, check_counts, orthogonal


def trigonometric_features(p: Projected) -> ScaledFeatures:
    """exp(|x|^2/2) / sqrt(m) * [sin(omega.x), cos(omega.x)], 2m features (HRF Eq. 2)."""
    values = jnp.concatenate([jnp.sin(p.along), jnp.cos(p.along)], axis=-1)
    return ScaledFeatures.of(values, p.half_square - math.log(p.omega.shape[0]) / 2)


trigonometric_estimator = symmetric(trigonometric_features)


def trigonometric(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Random Fourier features of m vectors, 2m features (Rahimi & Recht; HRF Eq. 2)."""
    return from_estimator(trigonometric_estimator, m, coupling)


class Phased(NamedTuple):
    """The features of `trigonometric_phase`: omega, and phases [m] in [0, 2 pi)."""

    omega: Projection
    phases: Array


def trigonometric_phase(m: int, coupling: Coupling = orthogonal) -> FeatureMap:
    """Random Fourier features with a random phase, exp(|x|^2/2) sqrt(2/m) cos(omega.x + b), m features.

    Half the features of `trigonometric`, and a variance that does not vanish for equal vectors
    (Rahimi & Recht, Algorithm 1).
    """
    check_counts(m=m)

    def init(key: Array, dim: int) -> Phased:
        omega_key, phase_key = jax.random.split(key)
        return Phased(coupling(omega_key, m, dim), jax.random.uniform(phase_key, (m,), maxval=2 * math.pi))

    def apply(features: Phased, x: Array) -> ScaledFeatures:
        p = project(features.omega, x)
        return ScaledFeatures.of(jnp.cos(p.along + features.phases), p.half_square + math.log(2 / m) / 2)

    return FeatureMap(init, apply, apply)
