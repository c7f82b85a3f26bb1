"""Features exp(a complex number): families with trigonometric and positive features as special cases.

Complex features are [real, imaginary] for queries and [real, -imaginary] for keys. Their dot product is the
real part of the product, the estimate of a real kernel. Everything is real arithmetic, so a robot needs no
complex numbers.
"""

import math
from functools import lru_cache
from numbers import Number
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from robopolicy.attention.base import FeatureMap, ScaledFeatures, check_finite
from robopolicy.attention.estimator import Estimator, Projected, from_estimator, mean_square_of_sums
from robopolicy.attention.projections import (
    Coupling,
    Projection,
    along,
    check_counts,
    check_size,
    check_width,
    orthogonal,
)


class Exponent(NamedTuple):
    """The constants of generalised exponential features: A = real + i imaginary, and s = +-1."""

    real: Array
    imaginary: Array
    s: Array


def generalized_exponential(
    m: int, coupling: Coupling = orthogonal, A: complex | None = None, s: int | None = None
) -> FeatureMap:
    """D exp(A |omega|^2 + B omega.x - s|x|^2/2), B = sqrt(s (1 - 4A)), D = (1 - 4A)^(d/4) (GERF).

    2m features of m vectors. A = 0 is `positive` for s = 1 and `trigonometric` for s = -1. If both are None,
    L-BFGS finds A and s of least variance for unit tokens at right angles, or for the data of `fit`. Source:
    CRT Eq. 4, 5.

    Raises ValueError for one of A and s without the other, for an A that is no finite number with Re(1 - 8A)
    above 0 and a size of at most 1e9, and for s other than 1 and -1.
    """
    if A is None and s is None:
        estimator = Estimator(_queries, _keys, _unit_constants, fit=_fitted)
        return from_estimator(estimator, m, coupling)
    if A is None or s is None:
        raise ValueError(f"A is {A} and s is {s}: give both, or neither to optimise them")
    if not isinstance(A, Number) or not (np.isfinite(A) and (1 - 8 * A).real > 0):
        raise ValueError(f"A is {A!r}: it must be a number with Re(1 - 8A) above 0")
    check_size("A", A, least=0)
    if s not in (1, -1):
        raise ValueError(f"s is {s!r}: it must be 1 or -1")
    exponent = _exponent(complex(A), int(s))
    return from_estimator(Estimator(_queries, _keys, lambda dim: exponent), m, coupling)


def _queries(p: Projected, c: Exponent) -> ScaledFeatures:
    return _generalised(p, c, jnp.ones(()), 1.0)


def _keys(p: Projected, c: Exponent) -> ScaledFeatures:
    return _generalised(p, c, c.s, -1.0)


def _generalised(p: Projected, c: Exponent, slope: Array, conjugate: float) -> ScaledFeatures:
    """The features of tokens times `slope`; conjugate is -1 for keys."""
    m, dim = p.omega.shape
    real, imaginary = 1 - 4 * c.real, -4 * c.imaginary
    log_size, angle = jnp.log(real**2 + imaginary**2) / 2, jnp.arctan2(imaginary, real)
    half = jnp.arctan2(c.s * imaginary, c.s * real) / 2
    b = slope * jnp.exp(log_size / 2)
    squares = p.omega.squares()
    exponents = c.real * squares + b * jnp.cos(half) * p.along
    phases = c.imaginary * squares + b * jnp.sin(half) * p.along + dim / 4 * angle
    log_scale = dim / 4 * log_size - c.s * p.half_square - math.log(m) / 2
    return _complex(exponents, phases, log_scale, conjugate)


def _complex(exponents: Array, phases: Array, log_scale: Array, conjugate: float) -> ScaledFeatures:
    """exp(exponents + i phases + log_scale), [..., m], [..., m] and [...], as 2m features in [-1, 1]."""
    peak = jax.lax.stop_gradient(jnp.max(exponents, axis=-1))
    sizes = jnp.exp(exponents - peak[..., None])
    values = jnp.concatenate([sizes * jnp.cos(phases), conjugate * sizes * jnp.sin(phases)], axis=-1)
    return ScaledFeatures.of(values, peak + log_scale)


def _unit_constants(dim: int) -> Exponent:
    return _exponent(*best_exponent(2.0, 2.0, 2.0, dim))


def _fitted(x: Array, y: Array) -> Exponent:
    check_finite(x, y)
    lengths = jnp.mean(jnp.sum(x * x, axis=1)) + jnp.mean(jnp.sum(y * y, axis=1))
    sums, differences = (float(mean_square_of_sums(x, y, None, s)) for s in (1.0, -1.0))
    return _exponent(*best_exponent(sums, differences, float(lengths), x.shape[1]))


@lru_cache(maxsize=256)
def best_exponent(sums: float, differences: float, lengths: float, dim: int) -> tuple[complex, int]:
    """A and s of least variance for mean |x + y|^2, |x - y|^2 and |x|^2 + |y|^2 (CRT Theorem 3.2, 9.10.1).

    L-BFGS searches over complex A, for s = 1 and for s = -1.
    """
    from scipy.optimize import minimize

    best = (np.inf, 0j, 1)
    for s, square in ((1, sums), (-1, differences)):

        def log_moment(a: NDArray[np.float64], s: int = s, square: float = square) -> float:
            return float(log_second_moment(complex(*a), s, square, lengths, dim))

        # The gradient across the real axis vanishes on it, so one search starts beside it.
        for start in ([0.0, 0.0], [-0.1, 0.1]):
            limits = [(None, 0.1249), (None, None)]
            result = minimize(log_moment, start, method="L-BFGS-B", bounds=limits, options={"maxiter": 50})
            if result.fun < best[0]:
                best = (float(result.fun), complex(*result.x), s)
    return best[1:]


def log_second_moment(A: Any, s: int, square: ArrayLike, lengths: ArrayLike, dim: int) -> NDArray[np.float64]:
    """log E[Re(f1 f2)^2] of the Gaussian kernel; |x + s y|^2 = square, |x|^2 + |y|^2 = lengths (CRT Eq. 6).

    A is a number or an array. In logarithms, since the terms overflow from |x + s y|^2 = 350 on.
    """
    v, a, b = np.asarray(square, np.float64), 1 - 8 * A, 1 - 8 * A.real
    # alpha_1 from its derivation (CRT Eq. 20): the printed root has the wrong sign for some A.
    first = dim * np.log(1 - 4 * A) - dim / 2 * np.log(a) + (s + s / a) * v
    slope = s / 2 + (s + 2 * abs(1 - 4 * A)) / (2 * b)
    second = dim / 2 * np.log1p(16 * abs(A) ** 2 / b) + slope * v
    # The first is at most the second; rounding must not make their sum zero or less.
    both = np.log1p(np.maximum(np.exp(first - second).real, -1 + 1e-15))
    return second + both - np.log(2) - (s + 1) * np.asarray(lengths, np.float64)


def _exponent(A: complex, s: int) -> Exponent:
    # NumPy arrays, since `init` may run while JAX traces a program.
    real, imaginary, sign = (np.asarray(c, np.float32) for c in (A.real, A.imag, s))
    return Exponent(real, imaginary, sign)  # type: ignore[arg-type]


class Mixed(NamedTuple):
    """The features of `complex_exponential`: omega, A and the transpose of its inverse, [2, D, D] each.

    The leading axis holds real and imaginary parts.
    """

    omega: Projection
    queries: Array
    keys: Array


def complex_exponential(m: int, A: ArrayLike, coupling: Coupling = orthogonal) -> FeatureMap:
    """exp(omega.u - u.u/2) with u = A x for queries and u = inverse(A)^T y for keys (CE, HRF Eq. 14 to 16).

    2m features of m vectors. The variance is zero where A x = -inverse(A)^T y. A is a matrix [D, D], or a
    complex number for that multiple of the identity: 1 gives `positive`, 1j `trigonometric`.

    Raises ValueError for an A that is no number or square matrix, is not finite, or has a condition number of
    1e6 or more, and for a number whose size is below 1e-9 or above 1e9. `init` raises it for tokens of
    another width than D.
    """
    check_counts(m=m)
    if np.asarray(A).dtype.kind not in "iufc":
        raise ValueError(f"A is {A!r}: it must be a number or a square matrix [D, D]")
    matrix = np.asarray(A, np.complex128)
    if matrix.ndim and (matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]):
        raise ValueError(f"A has shape {matrix.shape}: it must be a number or a square matrix [D, D]")
    square = np.atleast_2d(matrix)
    if not np.all(np.isfinite(square)) or not np.linalg.cond(square) < 1e6:
        shown = f"a matrix of shape {matrix.shape}" if matrix.ndim else complex(matrix)
        raise ValueError(f"A is {shown}: it must be finite and invertible, with a condition number below 1e6")
    if not matrix.ndim:
        check_size("A", complex(matrix))

    def init(key: Array, dim: int) -> Mixed:
        full = matrix * np.eye(dim) if not matrix.ndim else matrix
        if full.shape[0] != dim:
            raise ValueError(f"A has shape {matrix.shape} and tokens have width {dim}: they must agree")
        return Mixed(coupling(key, m, dim), _parts(full), _parts(np.linalg.inv(full).T))

    def apply_q(features: Mixed, x: Array) -> ScaledFeatures:
        return complex_features(features.omega, *_multiplied(features.queries, x), 1.0)

    def apply_k(features: Mixed, y: Array) -> ScaledFeatures:
        return complex_features(features.omega, *_multiplied(features.keys, y), -1.0)

    return FeatureMap(init, apply_q, apply_k)


def complex_features(omega: Projection, real: Array, imaginary: Array, conjugate: float) -> ScaledFeatures:
    """exp(omega.u - u.u/2) / sqrt(m) for u = real + i imaginary, [T, D] each; conjugate is -1 for keys."""
    log_scale = (jnp.sum(imaginary**2, axis=-1) - jnp.sum(real**2, axis=-1)) / 2
    cross = jnp.sum(real * imaginary, axis=-1)
    phases = along(omega, imaginary) - cross[..., None]
    return _complex(along(omega, real), phases, log_scale - math.log(omega.shape[0]) / 2, conjugate)


def _multiplied(matrix: Array, x: Array) -> tuple[Array, Array]:
    check_width(x, matrix.shape[-1])
    return x @ matrix[0].T, x @ matrix[1].T


def _parts(matrix: np.ndarray) -> Array:
    return jnp.asarray(np.stack([matrix.real, matrix.imag]), jnp.float32)
