"""Draws of projection vectors, and the maps that see a token only through them.

A coupling draws m vectors that are each marginally N(0, I_D) and says how they depend on one another.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import FeatureMap, ScaledFeatures

Coupling = Callable[[Array, int, int], Array]
"""(key, m, dim) -> [m, dim]."""


def iid(key: Array, m: int, dim: int) -> Array:
    """Independent Gaussian vectors, [m, dim]."""
    return jax.random.normal(key, (m, dim))


def orthogonal(key: Array, m: int, dim: int) -> Array:
    """Blocks of `dim` orthogonal vectors, blocks independent of one another, [m, dim].

    Directions are Haar-distributed and norms are chi_dim, independent of the directions (Yu et al.,
    Orthogonal Random Features, section 3).
    """
    direction_key, norm_key = jax.random.split(key)
    blocks = -(-m // dim)
    q, r = jnp.linalg.qr(jax.random.normal(direction_key, (blocks, dim, dim)))
    # QR fixes the signs of R's diagonal by convention; undoing that is what makes Q Haar.
    q = q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[:, None, :]
    norms = jnp.linalg.norm(jax.random.normal(norm_key, (m, dim)), axis=1)
    return q.reshape(blocks * dim, dim)[:m] * norms[:, None]


class Projected(NamedTuple):
    """Tokens as seen by projection vectors, computed once for all the estimators that share them.

    Attributes:
      omega: [m, D], the projection vectors.
      along: [T, m], omega.x.
      half_square: [T], |x|^2 / 2.
    """

    omega: Array
    along: Array
    half_square: Array


Estimator = Callable[[Projected], ScaledFeatures]
"""Features of one base estimator of SM from the projected tokens; the same for queries and keys."""


def along(omega: Array, x: Array) -> Array:
    """omega.x [T, m] for tokens x [T, D] and vectors omega [m, D]. Raises ValueError if widths differ."""
    if x.ndim != 2 or x.shape[1] != omega.shape[1]:
        raise ValueError(
            f"tokens have shape {x.shape}; these features were drawn for [tokens, {omega.shape[1]}]"
        )
    return x @ omega.T


def project(omega: Array, x: Array) -> Projected:
    """Project tokens x [T, D] on omega [m, D]. Raises ValueError when the widths differ."""
    return Projected(omega, along(omega, x), jnp.sum(x * x, axis=-1) / 2)


def from_estimator(estimator: Estimator, m: int, coupling: Coupling) -> FeatureMap:
    """The feature map of one base estimator on m vectors of its own; its features are omega [m, D]."""

    def apply(omega: Array, x: Array) -> ScaledFeatures:
        return estimator(project(omega, x))

    return FeatureMap(lambda key, dim: coupling(key, m, dim), apply, apply)
