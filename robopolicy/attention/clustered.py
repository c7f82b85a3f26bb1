"""Hybrids for data with clusters: an estimator that is exact at the centres for each pair of clusters.

For a query centre r and a key centre s, the complex exponential estimator with diagonal A such that
A r = -s / A has no variance at (r, s) and little near it (HRF section 2.4 and Appendix H). Which of the
estimators counts is decided by which clusters query and key belong to, or by Gaussian coefficients around
the pairs.

Before `fit`, centres are random: the estimate is unbiased, and no better than others.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention.base import Block, FeatureMap, ScaledFeatures, unchanged
from robopolicy.attention.estimator import project
from robopolicy.attention.exponential import complex_features
from robopolicy.attention.hybrid import combine_k, combine_q
from robopolicy.attention.positive import exponential, positive_antithetic_features
from robopolicy.attention.projections import (
    Coupling,
    Projection,
    along,
    check_counts,
    check_width,
    orthogonal,
)

# Entries of A stay within this factor of what the lengths of the two centres ask for. Where a centre has a
# coordinate near zero the best entry for the centre itself is huge or tiny, which costs far more at the
# points around it; on clustered data like that of HRF Table 3 mean errors were least for 1.5 to 2.
CLIP = 2.0


class Clusters(NamedTuple):
    """Centres, and diagonal matrices for every pair of them; leading axes hold real and imaginary parts.

    Attributes:
      query_centres, key_centres: [P, D] and [Q, D].
      queries: [2, P, Q, D], A for the pair.
      keys: [2, P, Q, D], the inverse of A.
    """

    query_centres: Array
    key_centres: Array
    queries: Array
    keys: Array


class Clustered(NamedTuple):
    """Features of `clustered_hybrid`."""

    omega: Projection
    clusters: Clusters


class Mixture(NamedTuple):
    """Features of `gaussian_mixture_hybrid`: tau are the vectors of its coefficients."""

    omega: Projection
    tau: Projection
    clusters: Clusters


class Matrices(NamedTuple):
    """A family of diagonal matrices A.

    Attributes:
      solve: (r, s) -> real and imaginary part of the A that brings A r + s / A nearest to zero, for centres
        [..., D].
      features: (omega, real[T, D], imaginary[T, D], conjugate) -> features of tokens multiplied by A.
    """

    solve: Callable[[Array, Array], tuple[Array, Array]]
    features: Callable[[Projection, Array, Array, float], ScaledFeatures]


def _size(r: Array, s: Array) -> Array:
    r, s = jnp.broadcast_arrays(r, s)
    r_length, s_length = (jnp.linalg.norm(centre, axis=-1, keepdims=True) for centre in (r, s))
    usual = jnp.where((r_length > 0) & (s_length > 0), jnp.sqrt(s_length / jnp.maximum(r_length, 1e-30)), 1.0)
    size = jnp.sqrt(jnp.abs(s) / jnp.maximum(jnp.abs(r), 1e-30))
    return jnp.where((r == 0) & (s == 0), usual, jnp.clip(size, usual / CLIP, usual * CLIP))


def _real(r: Array, s: Array) -> tuple[Array, Array]:
    size = _size(r, s)
    return size, jnp.zeros_like(size)


def _complex(r: Array, s: Array) -> tuple[Array, Array]:
    size, alike = _size(r, s), r * s > 0
    return jnp.where(alike, 0.0, size), jnp.where(alike, size, 0.0)


def _real_features(omega: Projection, real: Array, imaginary: Array, conjugate: float) -> ScaledFeatures:
    half_square = jnp.sum(real**2, axis=-1) / 2
    return exponential(along(omega, real), -half_square - math.log(omega.shape[0]) / 2)


REAL = Matrices(_real, _real_features)
"""sqrt|s / r|: exact where r and s differ in sign (HRF Eq. 88)."""
COMPLEX = Matrices(_complex, complex_features)
"""Real where r and s differ in sign, else imaginary, and exact everywhere (HRF Eq. 85)."""


def clustered_hybrid(
    m: int,
    query_clusters: int,
    key_clusters: int,
    coupling: Coupling = orthogonal,
    matrices: Matrices = COMPLEX,
) -> FeatureMap:
    """One estimator a pair of clusters, chosen by the clusters nearest to query and key (HRF Definition H.2).

    All pairs share omega, since one pair has all the weight for any query and key. There are m features a
    pair with REAL matrices, 2m with COMPLEX ones. The choice of a cluster has no derivative.

    `fit` finds the centres by k-means, and raises ValueError for fewer tokens than clusters.
    """
    check_counts(m=m, query_clusters=query_clusters, key_clusters=key_clusters)

    def init(key: Array, dim: int) -> Clustered:
        omega_key, *keys = jax.random.split(key, 3)
        centres = _drawn(keys, (query_clusters, key_clusters), dim)
        return Clustered(coupling(omega_key, m, dim), _clusters(centres, matrices))

    def fit(key: Array, x: Array, y: Array) -> Clustered:
        omega_key, *keys = jax.random.split(key, 3)
        centres = _fitted(keys, (x, y), (query_clusters, key_clusters))
        return Clustered(coupling(omega_key, m, x.shape[1]), _clusters(centres, matrices))

    def apply_q(features: Clustered, x: Array) -> ScaledFeatures:
        own = _nearest(features.clusters.query_centres, x)
        by_key = [
            _estimate(features.omega, features.clusters.queries[:, own, j], x, 1.0, matrices)
            for j in range(key_clusters)
        ]
        blocks = [_where(own == i, by_key[j]) for i in range(query_clusters) for j in range(key_clusters)]
        return ScaledFeatures(tuple(blocks))

    def apply_k(features: Clustered, y: Array) -> ScaledFeatures:
        own = _nearest(features.clusters.key_centres, y)
        by_query = [
            _estimate(features.omega, features.clusters.keys[:, i, own], y, -1.0, matrices)
            for i in range(query_clusters)
        ]
        blocks = [_where(own == j, by_query[i]) for i in range(query_clusters) for j in range(key_clusters)]
        return ScaledFeatures(tuple(blocks))

    return FeatureMap(init, apply_q, apply_k, unchanged, fit)


def gaussian_mixture_hybrid(
    m: int,
    n: int,
    query_clusters: int,
    key_clusters: int,
    coupling: Coupling = orthogonal,
    matrices: Matrices = COMPLEX,
    width: float = 0.5,
) -> FeatureMap:
    """One estimator a pair of clusters, weighted by exp(-|A x + inverse(A) y|^2 / (2 width^2)).

    |z|^2 of a complex vector is its squared length. `positive_antithetic` takes the remaining weight. All
    estimators share omega, all coefficients tau; coefficients are made of n vectors of trigonometric
    features, which are exact at the centres, where a coefficient is one. Source: HRF Definition H.1.

    Raises ValueError for a width that is not positive, and from `fit` for fewer tokens than clusters.
    """
    check_counts(m=m, n=n, query_clusters=query_clusters, key_clusters=key_clusters)
    if not (math.isfinite(width) and width > 0):
        raise ValueError(f"width is {width}: it must be a finite number above 0")
    pairs = [(i, j) for i in range(query_clusters) for j in range(key_clusters)]

    def draw(omega_key: Array, tau_key: Array, clusters: Clusters) -> Mixture:
        dim = clusters.query_centres.shape[1]
        return Mixture(coupling(omega_key, m, dim), coupling(tau_key, n, dim), clusters)

    def init(key: Array, dim: int) -> Mixture:
        omega_key, tau_key, *keys = jax.random.split(key, 4)
        centres = _drawn(keys, (query_clusters, key_clusters), dim)
        return draw(omega_key, tau_key, _clusters(centres, matrices))

    def fit(key: Array, x: Array, y: Array) -> Mixture:
        omega_key, tau_key, *keys = jax.random.split(key, 4)
        centres = _fitted(keys, (x, y), (query_clusters, key_clusters))
        return draw(omega_key, tau_key, _clusters(centres, matrices))

    def side(
        features: Mixture, diagonals: Array, mirror: float, x: Array, conjugate: float
    ) -> tuple[list[ScaledFeatures], list[ScaledFeatures]]:
        check_width(x, diagonals.shape[-1])
        rhos, estimates = [], []
        for i, j in pairs:
            real, imaginary = diagonals[:, i, j]
            # |a x + y/a|: a x meets -y/a on a real axis and y/a, of which i is left out, on an imaginary one.
            seen = (mirror * real + jnp.abs(imaginary)) * x / width
            angles = along(features.tau, seen)
            waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
            rhos.append(ScaledFeatures.of(waves / math.sqrt(n)))
            estimates.append(_estimate(features.omega, diagonals[:, i, j][:, None], x, conjugate, matrices))
        return rhos, [*estimates, positive_antithetic_features(project(features.omega, x))]

    def apply_q(features: Mixture, x: Array) -> ScaledFeatures:
        return combine_q([0.0] * len(pairs), *side(features, features.clusters.queries, 1.0, x, 1.0))

    def apply_k(features: Mixture, y: Array) -> ScaledFeatures:
        return combine_k([0.0] * len(pairs), *side(features, features.clusters.keys, -1.0, y, -1.0))

    return FeatureMap(init, apply_q, apply_k, unchanged, fit)


def _clusters(centres: Sequence[Array], matrices: Matrices) -> Clusters:
    query_centres, key_centres = centres
    real, imaginary = matrices.solve(query_centres[:, None], key_centres[None, :])
    square = real**2 + imaginary**2
    inverse = jnp.stack([real, -imaginary]) / square
    return Clusters(query_centres, key_centres, jnp.stack([real, imaginary]), inverse)


def _drawn(keys: Sequence[Array], counts: Sequence[int], dim: int) -> list[Array]:
    """Random corners of a cube, at distance one, [count, dim] each.

    Coordinates of one size give matrices of one size, so that random centres favour no token.
    """
    corners = [jax.random.rademacher(k, (c, dim), jnp.float32) for k, c in zip(keys, counts, strict=True)]
    return [corner / math.sqrt(dim) for corner in corners]


def _fitted(keys: Sequence[Array], tokens: Sequence[Array], counts: Sequence[int]) -> list[Array]:
    """Centres of queries and keys by k-means, [count, D] each."""
    from sklearn.cluster import KMeans

    centres = []
    for name, key, side, count in zip(("queries", "keys"), keys, tokens, counts, strict=True):
        points = np.asarray(side, np.float64)
        if len(points) < count or not np.all(np.isfinite(points)):
            raise ValueError(f"{name} are {len(points)} tokens: k-means needs {count} or more, all finite")
        means = KMeans(count, n_init=10, random_state=int(jax.random.bits(key, (), jnp.uint32)))
        centres.append(jnp.asarray(means.fit(points).cluster_centers_, jnp.float32))
    return centres


def _nearest(centres: Array, x: Array) -> Array:
    """The cluster of every token, [T]. Raises ValueError if the widths differ."""
    check_width(x, centres.shape[1])
    return jnp.argmin(jnp.sum(centres**2, axis=1) - 2 * x @ centres.T, axis=1)


def _estimate(
    omega: Projection, diagonals: Array, x: Array, conjugate: float, matrices: Matrices
) -> ScaledFeatures:
    """Features of tokens multiplied by diagonals [2, T or 1, D]."""
    return matrices.features(omega, diagonals[0] * x, diagonals[1] * x, conjugate)


def _where(mine: Array, features: ScaledFeatures) -> Block:
    """The one block of `features`, weighing nothing except where a token is `mine` [T]."""
    (block,) = features.blocks
    assert block.log_scale is not None
    return block._replace(log_scale=jnp.where(mine, block.log_scale, -jnp.inf))
