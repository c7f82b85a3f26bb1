"""The estimate of a single projection vector: every estimator is the mean of such terms."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.attention.theory import Doubles, angle, kernel, optimal_constant
from robopolicy.plan.pairs import Pairs


class Base(NamedTuple):
    """An estimator and its constants.

    Attributes:
      A, s: constants of exponential estimators.
      sigma, radius: constants of a Gaussian hybrid's coefficient.
      parameter: parameter of a discrete estimator's distribution.
    """

    name: str
    A: complex = 0j
    s: int = 1
    sigma: float = 1.0
    radius: float = 1.0
    parameter: float = 0.0


class Projected(NamedTuple):
    """P pairs, projected on N draws of a block of b vectors omega.

    Attributes:
      x, y: omega.x and omega.y, [N, P, b].
      squares: |omega|^2, [N, 1, b].
    """

    x: Doubles
    y: Doubles
    squares: Doubles


Term = Callable[[Base, Pairs, Projected], Doubles]


def _half(pairs: Pairs) -> Doubles:
    """(|x|^2 + |y|^2) / 2 as [P, 1]."""
    return (np.sum(pairs.x**2, axis=1) + np.sum(pairs.y**2, axis=1))[:, None] / 2


def optimal_positive(base: Base, pairs: Pairs, projected: Projected) -> Doubles:
    """CRT Theorem 3.3, with the constant for each pair's frame and head."""
    tilt = optimal_constant(pairs.square, pairs.dim)[:, None]
    exponent = (
        2 * tilt * projected.squares + np.sqrt(1 - 4 * tilt) * (projected.x + projected.y) - _half(pairs)
    )
    return np.exp(exponent + pairs.dim / 2 * np.log(1 - 4 * tilt))


def generalized_exponential(base: Base, pairs: Pairs, projected: Projected) -> Doubles:
    """CRT Eq. 4, 5."""
    b = np.sqrt(base.s * (1 - 4 * base.A) + 0j)
    along = b * (projected.x + base.s * projected.y)
    exponent = 2 * base.A * projected.squares + along - base.s * _half(pairs)
    return _real(exponent + pairs.dim / 2 * np.log(1 - 4 * base.A + 0j))


def complex_exponential(base: Base, pairs: Pairs, projected: Projected) -> Doubles:
    """HRF Eq. 14 to 16, for a multiple A of the identity."""
    squares = base.A**2 * np.sum(pairs.x**2, axis=1) + np.sum(pairs.y**2, axis=1) / base.A**2
    return _real(base.A * projected.x + projected.y / base.A - squares[:, None] / 2)


def _real(exponent: NDArray[np.complex128]) -> Doubles:
    """The real part of exp(exponent)."""
    real: Doubles = np.exp(exponent.real) * np.cos(exponent.imag)
    return real


TERMS: Mapping[str, Term] = {
    # HRF Eq. 2, FAVOR+ and HRF Eq. 3.
    "trigonometric": lambda base, pairs, p: np.cos(p.x - p.y) * np.exp(_half(pairs)),
    "positive": lambda base, pairs, p: np.exp(p.x + p.y - _half(pairs)),
    "positive_antithetic": lambda base, pairs, p: np.cosh(p.x + p.y) * np.exp(-_half(pairs)),
    "optimal_positive": optimal_positive,
    "generalized_exponential": generalized_exponential,
    "complex_exponential": complex_exponential,
    # HRF Eq. 42 with mean 1 - 2 angle / pi, and Eq. 70 with the Gaussian kernel of sigma x, sigma y as mean.
    "signs": lambda base, pairs, p: np.sign(p.x) * np.sign(p.y),
    "waves": lambda base, pairs, p: np.cos(base.sigma * (p.x - p.y)),
}
"""The terms [N, P, b] by name. Discrete estimators need none: their vectors are independent."""

ALIASES = {"trigonometric_phase": "trigonometric"}
"""Estimators whose terms equal those of another one on average over the random phases."""


def expected(base: Base, pairs: Pairs) -> Doubles:
    """The mean of a term over vectors, [P]."""
    if base.name == "signs":
        return 1 - 2 * angle(pairs.x, pairs.y) / np.pi
    if base.name == "waves":
        return np.exp(-(base.sigma**2) * np.sum((pairs.x - pairs.y) ** 2, axis=1) / 2)
    return kernel(pairs.x, pairs.y)
