"""Closed-form mean squared errors of estimators of SM(x, y) = exp(x.y), for independent projection vectors.

All take x and y as [..., D], broadcast against each other, work in double precision, and return [...]. HRF is
Choromanski et al., Hybrid Random Features, ICLR 2022. Every estimator here is unbiased, so an MSE is a
variance.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Mse = Callable[[ArrayLike, ArrayLike, int], NDArray[np.float64]]
"""(x, y, m) -> mean squared error of a base estimator on m vectors."""


def trigonometric_mse(x: ArrayLike, y: ArrayLike, m: int) -> NDArray[np.float64]:
    """Of `trigonometric(m)`, HRF Lemma 2.2."""
    x, y = _double(x, y)
    return np.exp(_square(x) + _square(y)) * np.expm1(-_square(x - y)) ** 2 / (2 * m)


def positive_antithetic_mse(x: ArrayLike, y: ArrayLike, m: int) -> NDArray[np.float64]:
    """Of `positive_antithetic(m)`, HRF Lemma 2.2."""
    x, y = _double(x, y)
    z = _square(x + y)
    return np.exp(z) * _kernel(x, y) ** 2 * np.expm1(-z) ** 2 / (2 * m)


def positive_mse(x: ArrayLike, y: ArrayLike, m: int) -> NDArray[np.float64]:
    """Of the one-sided `positive(m)`: SM^2 (exp(|x + y|^2) - 1) / m (FAVOR+, Performer Lemma 2)."""
    x, y = _double(x, y)
    return _kernel(x, y) ** 2 * np.expm1(_square(x + y)) / m


def angular_hybrid_mse(
    x: ArrayLike, y: ArrayLike, m: int, n: int, base_mse: Mse = positive_antithetic_mse
) -> NDArray[np.float64]:
    """Of `angular_hybrid(m, n)` with omega shared by its bases, HRF Eq. 46 (Theorem 3.1, Lemma 3.2).

    `base_mse` is that of its positive base. The covariance of the two bases is the same for the one-sided
    base, since averaging over omega and -omega leaves E[exp(omega.(x + y)) cos(omega.(x - y))] as it is
    (Eq. 37).
    """
    x, y = _double(x, y)
    mean = _angle(x, y) / np.pi
    square = mean * (mean - mean / n + 1 / n)
    shared = 2 / m * _kernel(x, y) ** 2 * (1 - np.cos(_square(x) - _square(y))) * (mean - square)
    rest = (1 - 2 * mean + square) * trigonometric_mse(x, y, m)
    return square * base_mse(x, y, m) + rest - shared


def _double(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(x, np.float64), np.asarray(y, np.float64)


def _square(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sum(x * x, axis=-1)


def _kernel(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(np.sum(x * y, axis=-1))


def _angle(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    # From half-angles: the arc cosine loses all digits near 0 and pi, where the theory is sharpest.
    u, w = (a / np.sqrt(_square(a))[..., None] for a in (x, y))
    return 2 * np.arctan2(np.sqrt(_square(u - w)), np.sqrt(_square(u + w)))
