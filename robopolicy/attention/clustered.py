"""Hybrids for data with clusters: for each pair of clusters, an estimator that is exact at the centres.

For a query centre r and a key centre s, the complex exponential estimator with diagonal A such that
A r = -s / A has no variance at (r, s) and little near it (HRF section 2.4 and Appendix H). The clusters of
query and key choose the estimator, or Gaussian coefficients around the pairs weigh all of them.

Before `fit`, centres are random: the estimate is unbiased, but no better than that of other mechanisms.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention.base import Block, FeatureMap, ScaledFeatures
from robopolicy.attention.estimator import project
from robopolicy.attention.exponential import complex_features
from robopolicy.attention.hybrid import combine_k, combine_q, wave_features
from robopolicy.attention.positive import exponential, positive_antithetic_features
from robopolicy.attention.projections import (
    Coupling,
    Projection,
    along,
    check_counts,
    check_positive,
    check_width,
    orthogonal,
)

CLIP = 2.0
"""The largest factor between an entry of A and sqrt(|s| / |r|), the one for the lengths of the two centres.

If a coordinate of a centre is near zero, the best entry for the centre is huge or tiny, which raises the
error at the points around it. On clustered data like that of HRF Table 3, mean errors are least for 1.5 to 2.
"""


class Clusters(NamedTuple):
    """Centres, and diagonal matrices for every pair of them, as real and imaginary parts.

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
      solve: (r, s) -> real and imaginary part of the A for which A r + s / A is least, for centres [..., D].
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
    size, same_sign = _size(r, s), r * s > 0
    return jnp.where(same_sign, 0.0, size), jnp.where(same_sign, size, 0.0)


def _real_features(omega: Projection, real: Array, imaginary: Array, conjugate: float) -> ScaledFeatures:
    half_square = jnp.sum(real**2, axis=-1) / 2
    return exponential(along(omega, real), -half_square - math.log(omega.shape[0]) / 2)


REAL = Matrices(_real, _real_features)
"""sqrt|s / r|: exact within CLIP if r and s differ in sign (HRF Eq. 88)."""
COMPLEX = Matrices(_complex, complex_features)
"""Real if r and s differ in sign, else imaginary, and exact within CLIP (HRF Eq. 85)."""


def clustered_hybrid(
    m: int,
    query_clusters: int,
    key_clusters: int,
    coupling: Coupling = orthogonal,
    matrices: Matrices = COMPLEX,
) -> FeatureMap:
    """One estimator per pair of clusters, chosen by the clusters of query and key (HRF Definition H.2).

    All pairs share omega, since one pair has all the weight for any query and key. There are m features per
    pair with REAL matrices, 2m with COMPLEX ones. The choice of a cluster has no derivative.

    `fit` finds the centres by k-means, and raises ValueError for fewer tokens than clusters, or tokens that
    are not finite.
    """
    check_counts(m=m, query_clusters=query_clusters, key_clusters=key_clusters)
    pairs = [(i, j) for i in range(query_clusters) for j in range(key_clusters)]

    def draw(key: Array, dim: int, x: Array | None = None, y: Array | None = None) -> Clustered:
        omega_key, *keys = jax.random.split(key, 3)
        clusters = _clusters(keys, (query_clusters, key_clusters), dim, (x, y), matrices)
        return Clustered(coupling(omega_key, m, dim), clusters)

    def apply_q(features: Clustered, x: Array) -> ScaledFeatures:
        omega, (centres, _, queries, _) = features
        own = _nearest(centres, x)
        by_key = [_estimate(omega, queries[:, own, j], x, 1.0, matrices) for j in range(key_clusters)]
        return ScaledFeatures(tuple(_where(own == i, by_key[j]) for i, j in pairs))

    def apply_k(features: Clustered, y: Array) -> ScaledFeatures:
        omega, (_, centres, _, keys) = features
        own = _nearest(centres, y)
        by_query = [_estimate(omega, keys[:, i, own], y, -1.0, matrices) for i in range(query_clusters)]
        return ScaledFeatures(tuple(_where(own == j, by_query[i]) for i, j in pairs))

    return FeatureMap(draw, apply_q, apply_k, fit=lambda key, x, y: draw(key, x.shape[1], x, y))


def gaussian_mixture_hybrid(
    m: int,
    n: int,
    query_clusters: int,
    key_clusters: int,
    coupling: Coupling = orthogonal,
    matrices: Matrices = COMPLEX,
    width: float = 0.5,
) -> FeatureMap:
    """One estimator per pair of clusters, weighted by exp(-|A x + inverse(A) y|^2 / (2 width^2)).

    |z|^2 of a complex vector is its squared length. `positive_antithetic` has the remaining weight. All
    estimators share omega, all coefficients tau. Coefficients consist of n vectors of trigonometric features.
    Where A r = -s / A, they are exact, and a coefficient is one. Source: HRF Definition H.1.

    Raises ValueError for a width outside [1e-9, 1e9]. `fit` raises it for fewer tokens than
    clusters, or tokens that are not finite.
    """
    check_counts(m=m, n=n, query_clusters=query_clusters, key_clusters=key_clusters)
    check_positive(width=width)
    pairs = [(i, j) for i in range(query_clusters) for j in range(key_clusters)]

    def draw(key: Array, dim: int, x: Array | None = None, y: Array | None = None) -> Mixture:
        omega_key, tau_key, *keys = jax.random.split(key, 4)
        clusters = _clusters(keys, (query_clusters, key_clusters), dim, (x, y), matrices)
        return Mixture(coupling(omega_key, m, dim), coupling(tau_key, n, dim), clusters)

    def side(
        features: Mixture, diagonals: Array, mirror: float, x: Array, conjugate: float
    ) -> tuple[list[ScaledFeatures], list[ScaledFeatures]]:
        check_width(x, diagonals.shape[-1])
        rhos, estimates = [], []
        for i, j in pairs:
            real, imaginary = diagonals[:, i, j]
            # |a x + y/a| is the distance of a x from -y/a for a real a, and of t x from y/t for a = i t.
            scaled = (mirror * real + jnp.abs(imaginary)) * x / width
            rhos.append(ScaledFeatures.of(wave_features(along(features.tau, scaled)) / math.sqrt(n)))
            estimates.append(_estimate(features.omega, diagonals[:, i, j][:, None], x, conjugate, matrices))
        return rhos, [*estimates, positive_antithetic_features(project(features.omega, x))]

    def apply_q(features: Mixture, x: Array) -> ScaledFeatures:
        return combine_q([0.0] * len(pairs), *side(features, features.clusters.queries, 1.0, x, 1.0))

    def apply_k(features: Mixture, y: Array) -> ScaledFeatures:
        return combine_k([0.0] * len(pairs), *side(features, features.clusters.keys, -1.0, y, -1.0))

    return FeatureMap(draw, apply_q, apply_k, fit=lambda key, x, y: draw(key, x.shape[1], x, y))


def _clusters(
    keys: Sequence[Array], counts: Sequence[int], dim: int, tokens: Sequence[Array | None], matrices: Matrices
) -> Clusters:
    """Clusters of `tokens`, the queries and the keys, or random ones if these are None."""
    sides = zip(("queries", "keys"), keys, counts, tokens, strict=True)
    query_centres, key_centres = (_centres(name, key, count, dim, side) for name, key, count, side in sides)
    real, imaginary = matrices.solve(query_centres[:, None], key_centres[None, :])
    inverse = jnp.stack([real, -imaginary]) / (real**2 + imaginary**2)
    return Clusters(query_centres, key_centres, jnp.stack([real, imaginary]), inverse)


def _centres(name: str, key: Array, count: int, dim: int, tokens: Array | None) -> Array:
    """Centres [count, D] of tokens by k-means; without tokens, random corners of a cube of diagonal two.

    Coordinates of equal size give matrices with entries of equal size, so random centres favour no token.
    """
    if tokens is None:
        return jax.random.rademacher(key, (count, dim), jnp.float32) / math.sqrt(dim)
    from sklearn.cluster import KMeans

    points = np.asarray(tokens, np.float64)
    if len(points) < count or not np.all(np.isfinite(points)):
        raise ValueError(f"{name} are {len(points)} tokens: k-means needs {count} or more, all finite")
    means = KMeans(count, n_init=10, random_state=int(jax.random.bits(key, (), jnp.uint32)))
    return jnp.asarray(means.fit(points).cluster_centers_, jnp.float32)


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
    """The one block of `features`, with weight zero for tokens whose `mine` [T] is False."""
    (block,) = features.blocks
    assert block.log_scale is not None
    return block._replace(log_scale=jnp.where(mine, block.log_scale, -jnp.inf))
