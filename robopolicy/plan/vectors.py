"""What a single projection vector estimates: the terms whose mean every estimator is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.attention.theory import Doubles, angle, kernel, optimal_constant
from robopolicy.plan.pairs import Pairs


class Base(NamedTuple):
    """An estimator by name, and the constants that it is made with.

    Attributes:
      A, s: of exponential estimators.
      sigma, radius: of the coefficient of a Gaussian hybrid.
      parameter: of the distribution that discrete estimators draw from.
    """

    name: str
    A: complex = 0j
    s: int = 1
    sigma: float = 1.0
    radius: float = 1.0
    parameter: float = 0.0


class Seen(NamedTuple):
    """Pairs as vectors of N draws of a block of b see them.

    Attributes:
      x, y: omega.x and omega.y, [N, P, b].
      squares: |omega|^2, [N, 1, b].
    """

    x: Doubles
    y: Doubles
    squares: Doubles


Term = Callable[[Base, Pairs, Seen], Doubles]


def _half(pairs: Pairs) -> Doubles:
    """(|x|^2 + |y|^2) / 2 as [P, 1]."""
    return (np.sum(pairs.x**2, axis=1) + np.sum(pairs.y**2, axis=1))[:, None] / 2


def trigonometric(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """HRF Eq. 2."""
    return np.cos(seen.x - seen.y) * np.exp(_half(pairs))


def positive(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """FAVOR+."""
    return np.exp(seen.x + seen.y - _half(pairs))


def positive_antithetic(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """HRF Eq. 3."""
    return np.cosh(seen.x + seen.y) * np.exp(-_half(pairs))


def optimal_positive(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """CRT Theorem 3.3, with the constant that each pair's frame and head lead to."""
    tilt = optimal_constant(pairs.square, pairs.dim)[:, None]
    exponent = 2 * tilt * seen.squares + np.sqrt(1 - 4 * tilt) * (seen.x + seen.y) - _half(pairs)
    return np.exp(exponent + pairs.dim / 2 * np.log(1 - 4 * tilt))


def generalized_exponential(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """CRT Eq. 4, 5."""
    b = np.sqrt(base.s * (1 - 4 * base.A) + 0j)
    along = b * (seen.x + base.s * seen.y)
    exponent = 2 * base.A * seen.squares + along - base.s * _half(pairs)
    return _real(exponent + pairs.dim / 2 * np.log(1 - 4 * base.A + 0j))


def complex_exponential(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """HRF Eq. 14 to 16, for a multiple A of the identity."""
    squares = base.A**2 * np.sum(pairs.x**2, axis=1) + np.sum(pairs.y**2, axis=1) / base.A**2
    return _real(base.A * seen.x + seen.y / base.A - squares[:, None] / 2)


def _real(exponent: NDArray[np.complex128]) -> Doubles:
    """The real part of exp(exponent)."""
    found: Doubles = np.exp(exponent.real) * np.cos(exponent.imag)
    return found


def signs(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """HRF Eq. 42, on its own scale: the mean is 1 - 2 angle / pi."""
    return np.sign(seen.x) * np.sign(seen.y)


def waves(base: Base, pairs: Pairs, seen: Seen) -> Doubles:
    """HRF Eq. 70: the mean is the Gaussian kernel of sigma x and sigma y."""
    return np.cos(base.sigma * (seen.x - seen.y))


TERMS: Mapping[str, Term] = {
    "trigonometric": trigonometric,
    "positive": positive,
    "positive_antithetic": positive_antithetic,
    "optimal_positive": optimal_positive,
    "generalized_exponential": generalized_exponential,
    "complex_exponential": complex_exponential,
    "signs": signs,
    "waves": waves,
}
"""By name, [N, P, b] each. Discrete estimators have none: their vectors are independent."""

ALIASES = {"trigonometric_phase": "trigonometric"}
"""Estimators whose terms are, on average over what else each vector draws, those of another one."""


def expected(base: Base, pairs: Pairs) -> Doubles:
    """The mean of a term over vectors, [P]."""
    if base.name == "signs":
        return 1 - 2 * angle(pairs.x, pairs.y) / np.pi
    if base.name == "waves":
        return np.exp(-(base.sigma**2) * np.sum((pairs.x - pairs.y) ** 2, axis=1) / 2)
    return kernel(pairs.x, pairs.y)
