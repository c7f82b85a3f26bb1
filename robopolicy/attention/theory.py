"""Closed-form mean squared errors (MSEs) of estimators of SM(x, y) = exp(x.y).

MSEs of maps broadcast x and y [..., D] and return [...]. All functions compute in double precision.
Every estimator is unbiased, so an MSE is a variance. Projection vectors are independent unless a function
states otherwise. For the Gaussian kernel, multiply by exp(-|x|^2 - |y|^2).

HRF is Choromanski et al. 2022, CRT Likhosherstov et al. 2022, SimRF Reid et al. 2023, ORF Yu et al. 2016.
Errors of orthogonal and simplex vectors are in conformity.py.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from robopolicy.attention.exponential import log_second_moment

Doubles = NDArray[np.float64]
Mse = Callable[[ArrayLike, ArrayLike, int], Doubles]
"""(x, y, m) -> MSE of a base estimator on m vectors."""


def trigonometric_mse(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """MSE of `trigonometric(m)`, HRF Lemma 2.2; for the Gaussian kernel, ORF Lemma 1."""
    x, y = _double(x, y)
    return np.exp(_square(x) + _square(y)) * np.expm1(-_square(x - y)) ** 2 / (2 * m)


def trigonometric_phase_mse(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """MSE of `trigonometric_phase(m)`, derived like HRF Lemma 2.2, with expectations over the phase too."""
    x, y = _double(x, y)
    return np.exp(_square(x) + _square(y)) * (1 + np.expm1(-_square(x - y)) ** 2) / (2 * m)


def positive_antithetic_mse(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """MSE of `positive_antithetic(m)`, HRF Lemma 2.2."""
    x, y = _double(x, y)
    z = _square(x + y)
    return np.exp(z) * kernel(x, y) ** 2 * np.expm1(-z) ** 2 / (2 * m)


def positive_mse(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """MSE of the one-sided `positive(m)`: SM^2 (exp(|x + y|^2) - 1) / m (FAVOR+, Performer Lemma 2)."""
    x, y = _double(x, y)
    return kernel(x, y) ** 2 * np.expm1(_square(x + y)) / m


def generalized_exponential_mse(x: ArrayLike, y: ArrayLike, m: int, A: complex | Doubles, s: int) -> Doubles:
    """MSE of `generalized_exponential(m, A=A, s=s)`, CRT Theorem 3.2 times exp(|x|^2 + |y|^2)."""
    x, y = _double(x, y)
    lengths = _square(x) + _square(y)
    log_moment = log_second_moment(A, s, _square(x + s * y), lengths, x.shape[-1])
    return (np.exp(log_moment + lengths) - kernel(x, y) ** 2) / m


def optimal_positive_mse(x: ArrayLike, y: ArrayLike, m: int, square: ArrayLike | None = None) -> Doubles:
    """MSE of `optimal_positive(m)` with the constant for mean |x + y|^2 = square; None is that of each pair.

    Source: CRT Theorems 3.2 and 3.3.
    """
    x, y = _double(x, y)
    A = optimal_constant(_square(x + y) if square is None else square, x.shape[-1])
    return generalized_exponential_mse(x, y, m, A, 1)


def optimal_constant(square: ArrayLike, dim: int) -> Doubles:
    """The real A of least variance for s = 1 and |x + y|^2 = square, CRT Theorem 3.3."""
    v = np.asarray(square, np.float64)
    return (1 - (np.sqrt((2 * v + dim) ** 2 + 8 * dim * v) + 2 * v + dim) / (2 * dim)) / 8


def complex_exponential_mse(x: ArrayLike, y: ArrayLike, m: int, A: ArrayLike) -> Doubles:
    """MSE of `complex_exponential(m, A)`, from E[exp(omega.z)] = exp(z.z / 2) (HRF Lemma 2.4)."""
    x, y = _double(x, y)
    matrix = np.asarray(A, np.complex128)
    matrix = matrix * np.eye(x.shape[-1]) if not matrix.ndim else matrix
    u, w = x @ matrix.T, y @ np.linalg.inv(matrix)
    z = u + w
    shift = -np.sum(u * u + w * w, axis=-1)
    squared = np.exp(shift + 2 * np.sum(z * z, axis=-1)).real
    modulus = np.exp(shift.real + 2 * _square(z.real))
    return (squared + modulus) / (2 * m) - kernel(x, y) ** 2 / m


def poisson_mse(x: ArrayLike, y: ArrayLike, m: int, rate: float) -> Doubles:
    """MSE of `poisson(m, rate=rate)`, CRT Theorem 3.4."""
    x, y = _double(x, y)
    log_moment = rate * x.shape[-1] + _square(x * y) / rate
    return (np.exp(log_moment) - kernel(x, y) ** 2) / m


def geometric_mse(x: ArrayLike, y: ArrayLike, m: int, p: float) -> Doubles:
    """MSE of `geometric(m, p=p)`, CRT Theorem 3.5."""
    x, y = _double(x, y)
    z = 2 * np.abs(x * y) / np.sqrt(1 - p)
    log_moment = np.sum(np.log(special.i0e(z)) + z - np.log(p), axis=-1)
    return (np.exp(log_moment) - kernel(x, y) ** 2) / m


def shifted(mse: Mse, x: ArrayLike, y: ArrayLike, m: int, shift: ArrayLike) -> Doubles:
    """MSE of a map on x - shift and y - shift, times the factor that restores SM(x, y) (CRT 3.2.3).

    `mse` is that of the map without a shift.
    """
    x, y = _double(x, y)
    c = np.asarray(shift, np.float64)
    log_factor = _square(x) + _square(y) - _square(x - c) - _square(y - c)
    return np.exp(log_factor) * mse(x - c, y - c, m)


def bipolar_hybrid_mse(
    x: ArrayLike,
    y: ArrayLike,
    m: int,
    mean: Doubles,
    square: Doubles,
    base_mse: Mse = positive_antithetic_mse,
    cross: Mse | None = None,
) -> Doubles:
    """MSE of lambda * positive + (1 - lambda) * trigonometric, HRF Theorem 3.1.

    Args:
      mean, square: E[lambda] and E[lambda^2].
      base_mse: MSE of the positive estimator.
      cross: covariance of the two base estimators, such as `positive_covariance`, if they share omega (Eq.
        23); None if they do not (Eq. 22).
    """
    x, y = _double(x, y)
    separate = square * base_mse(x, y, m) + (1 - 2 * mean + square) * trigonometric_mse(x, y, m)
    return separate if cross is None else separate + 2 * cross(x, y, m) * (mean - square)


def positive_covariance(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """Covariance of `positive` or `positive_antithetic` with `trigonometric` on the same m vectors.

    Source: HRF Eq. 37, 38. It does not change with an average over omega and -omega.
    """
    x, y = _double(x, y)
    return kernel(x, y) ** 2 * (np.cos(_square(x) - _square(y)) - 1) / m


def optimal_positive_covariance(
    x: ArrayLike, y: ArrayLike, m: int, square: ArrayLike | None = None
) -> Doubles:
    """Covariance of `optimal_positive` with `trigonometric` on the same m vectors (HRF Eq. 37, CRT Eq. 4)."""
    x, y = _double(x, y)
    own = _square(x + y)
    b = 1 - 4 * optimal_constant(own if square is None else square, x.shape[-1])
    mean = np.exp((own - _square(x - y) / b) / 2) * np.cos((_square(x) - _square(y)) / np.sqrt(b))
    return (mean - kernel(x, y) ** 2) / m


def angular_hybrid_mse(
    x: ArrayLike,
    y: ArrayLike,
    m: int,
    n: int,
    base_mse: Mse = positive_antithetic_mse,
    cross: Mse | None = positive_covariance,
) -> Doubles:
    """MSE of `angular_hybrid(m, n)`, HRF Theorem D.1: Eq. 46 with shared omega, Eq. 45 for cross=None."""
    mean = angle(x, y) / np.pi
    square = mean * (mean - mean / n + 1 / n)  # HRF Lemma 3.2
    return bipolar_hybrid_mse(x, y, m, mean, square, base_mse, cross)


def gaussian_hybrid_mse(
    x: ArrayLike,
    y: ArrayLike,
    m: int,
    n: int,
    sigma: float = 1.0,
    radius: float = 1.0,
    base_mse: Mse = positive_antithetic_mse,
    cross: Mse | None = positive_covariance,
) -> Doubles:
    """MSE of `gaussian_hybrid(m, n, sigma, radius)`, HRF Theorem F.1, for vectors of any lengths.

    Theorem F.1 omits the covariance of bases that share omega, which equal lengths make zero.
    """
    x, y = _double(x, y)
    rho = -np.expm1(-2 * (sigma * radius) ** 2)
    scaled = sigma**2 * _square(x - y)
    mean = -np.expm1(-scaled / 2) / rho
    square = mean**2 + np.expm1(-scaled) ** 2 / (2 * n * rho**2)
    return bipolar_hybrid_mse(x, y, m, mean, square, base_mse, cross)


def trigonometric_covariances(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """Covariances [S, S] of the estimates of SM(x, y_i), `trigonometric(m)`, for x [D] and y [S, D].

    From E[cos(omega.a) cos(omega.b)] = (exp(-|a - b|^2 / 2) + exp(-|a + b|^2 / 2)) / 2, with a = x - y_i. The
    diagonal is `trigonometric_mse`.
    """
    x, y = _double(x, y)
    return _covariances(x - y, -0.5 * _square(x - y), (_square(x) + _square(y)) / 2, m, -0.5, (1.0, -1.0))


def positive_covariances(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """Covariances [S, S] of the estimates of SM(x, y_i), `positive(m)`, for x [D] and y [S, D].

    From E[exp(omega.a) exp(omega.b)] = exp(|a + b|^2 / 2), with a = x + y_i.
    """
    x, y = _double(x, y)
    return _covariances(x + y, 0.5 * _square(x + y), -(_square(x) + _square(y)) / 2, m, 0.5, (1.0,))


def positive_antithetic_covariances(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """The same for `positive_antithetic(m)`, from E[cosh(omega.a) cosh(omega.b)]."""
    x, y = _double(x, y)
    return _covariances(x + y, 0.5 * _square(x + y), -(_square(x) + _square(y)) / 2, m, 0.5, (1.0, -1.0))


def trigonometric_phase_covariances(x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """The same for `trigonometric_phase(m)`: its random phases add exp(|x|^2 + y_i.y_j) / (2m)."""
    x, y = _double(x, y)
    logs = (_square(x) + _square(y)) / 2
    phases = np.exp(logs[:, None] + logs - 0.5 * _square(y[:, None] - y)) / (2 * m)
    return trigonometric_covariances(x, y, m) + phases


def optimal_positive_covariances(x: ArrayLike, y: ArrayLike, m: int, square: float) -> Doubles:
    """The same for `optimal_positive(m)` with the constant for mean |x + y|^2 = square.

    From E[exp(a |omega|^2 + omega.u)] = (1 - 2a)^(-d/2) exp(|u|^2 / (2 - 4a)), with CRT Eq. 4.
    """
    x, y = _double(x, y)
    A, dim = float(optimal_constant(square, x.shape[-1])), x.shape[-1]
    sums, logs = x + y, -(_square(x) + _square(y)) / 2
    both = _square(sums[:, None] + sums) * (1 - 4 * A) / (2 - 16 * A)
    together = np.exp(dim * np.log(1 - 4 * A) - dim / 2 * np.log(1 - 8 * A) + both + logs[:, None] + logs)
    exact = kernel(x, y)
    return (together - exact[:, None] * exact) / m


def _covariances(
    a: Doubles, log_mean: Doubles, log_scale: Doubles, m: int, sign: float, sides: tuple[float, ...]
) -> Doubles:
    """Covariances of exp(log_scale_i) f(omega.a_i) over m vectors, where f has the mean exp(log_mean_i).

    The mean of a product is that of exp(sign |a_i + side a_j|^2) over `sides`.
    """
    logs = log_scale[:, None] + log_scale
    together = np.mean([np.exp(logs + sign * _square(a[:, None] + side * a)) for side in sides], axis=0)
    return (together - np.exp(logs + log_mean[:, None] + log_mean)) / m


def read_mse(
    x: ArrayLike, y: ArrayLike, values: ArrayLike, weights: ArrayLike, covariances: ArrayLike
) -> float:
    """MSE of a read of linear attention, to first order in the errors of the kernel.

    A read is the mean of values by estimated weights w_i SM(x, y_i). Its error is that of the numerator less
    the exact read times that of the denominator, over the exact denominator (the delta method for a ratio).
    So it counts only as long as the denominator's error is small beside the denominator.

    Args:
      x: the query [D].
      y: the keys [S, D].
      values: [S].
      weights: [S], by age.
      covariances: of the estimates of SM(x, y_i), [S, S], such as `trigonometric_covariances`.
    """
    x, y = _double(x, y)
    exact = np.asarray(weights, np.float64) * kernel(x, y)
    values = np.asarray(values, np.float64)
    read = exact @ values / exact.sum()
    lever = np.asarray(weights, np.float64) * (values - read) / exact.sum()
    return float(lever @ np.asarray(covariances, np.float64) @ lever)


def relative_error(mse: Doubles, x: ArrayLike, y: ArrayLike) -> Doubles:
    """The relative error sqrt(MSE) / SM, HRF Definition 3.3."""
    return np.sqrt(mse) / kernel(*_double(x, y))


def angular_hybrid_bound(radius: float, m: int, n: int) -> float:
    """An upper bound on the relative error of `angular_hybrid(m, n)` on a sphere of radius 1 or more.

    Source: HRF Theorem 3.5, with the constants of its proof (Eq. 48 to 64).
    """
    terms = 1 / np.pi - 1 / (n * np.pi) + radius / (n * np.sqrt(np.pi))
    w = np.exp(2 * radius**2) * -np.expm1(-4 * radius**2)
    return float(np.sqrt(terms / (2 * m)) * float(w) / radius)


def kernel(x: ArrayLike, y: ArrayLike) -> Doubles:
    """SM(x, y) = exp(x.y)."""
    x, y = _double(x, y)
    return np.exp(np.sum(x * y, axis=-1))


def angle(x: ArrayLike, y: ArrayLike) -> Doubles:
    """The angle between x and y, in [0, pi]."""
    # From half-angles, since the arc cosine loses all digits near 0 and pi.
    u, w = (a / np.sqrt(_square(a))[..., None] for a in _double(x, y))
    return 2 * np.arctan2(np.sqrt(_square(u - w)), np.sqrt(_square(u + w)))


def _double(x: ArrayLike, y: ArrayLike) -> tuple[Doubles, Doubles]:
    return np.asarray(x, np.float64), np.asarray(y, np.float64)


def _square(x: Doubles) -> Doubles:
    return np.sum(x * x, axis=-1)
