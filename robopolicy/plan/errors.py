"""Predicted errors of kernel estimates, by mechanism.

The error of a mechanism on some pairs of queries and keys is the root of the mean relative squared error,

    sqrt(mean over pairs of E[(estimate - SM)^2] / SM^2),    SM(q, k) = exp(q.k).

It is 0 for exact softmax, and 1 if the estimate is off by the size of the kernel. The expectation over draws
of features is in closed form, except for the covariances that covariances.py samples.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from robopolicy.attention import theory
from robopolicy.attention.theory import Doubles
from robopolicy.plan.covariances import Covariances
from robopolicy.plan.families import ANGULAR, Shape
from robopolicy.plan.pairs import Pairs
from robopolicy.plan.vectors import ALIASES, Base

INDEPENDENT: Mapping[str, Callable[[Base, Pairs, int], Doubles]] = {
    "trigonometric": lambda b, p, m: theory.trigonometric_mse(p.x, p.y, m),
    "trigonometric_phase": lambda b, p, m: theory.trigonometric_phase_mse(p.x, p.y, m),
    "positive": lambda b, p, m: theory.positive_mse(p.x, p.y, m),
    "positive_antithetic": lambda b, p, m: theory.positive_antithetic_mse(p.x, p.y, m),
    "optimal_positive": lambda b, p, m: theory.optimal_positive_mse(p.x, p.y, m, p.square),
    "generalized_exponential": lambda b, p, m: theory.generalized_exponential_mse(p.x, p.y, m, b.A, b.s),
    "complex_exponential": lambda b, p, m: theory.complex_exponential_mse(p.x, p.y, m, b.A),
    "poisson": lambda b, p, m: theory.poisson_mse(p.x, p.y, m, b.parameter),
    "geometric": lambda b, p, m: theory.geometric_mse(p.x, p.y, m, b.parameter),
}
"""Mean squared errors on m independent vectors, [P]."""

TRIGONOMETRIC = Base("trigonometric")
LITTLE = 0.3  # share of the variance of independent vectors below which the whole variance is sampled


class Errors:
    """Predictions for given pairs of queries and keys. Results are cached."""

    def __init__(self, pairs: Pairs, seed: int = 0) -> None:
        self.pairs = pairs
        self._covariances = Covariances(pairs, seed)
        self._kernel = theory.kernel(pairs.x, pairs.y)
        self._angle = theory.angle(pairs.x, pairs.y)
        self._square_distance = np.sum((pairs.x - pairs.y) ** 2, axis=1)
        self._bases: dict[tuple[Base, int, str], Doubles] = {}
        self._crosses: dict[tuple[Base, int, str], Doubles] = {}

    def of(self, shape: Shape, coupling: str) -> float:
        """The error of a mechanism; infinite if the predicted square is negative or not a finite number."""
        error = float(np.mean(self._mse(shape, coupling) / self._kernel**2))
        return math.sqrt(error) if 0 <= error < math.inf else math.inf

    def _mse(self, shape: Shape, coupling: str) -> Doubles:
        if not shape.n:
            return self._base(shape.base, shape.m, coupling)
        positive = shape.base._replace(sigma=1.0, radius=1.0)
        mean, square = self._coefficient(shape, coupling)
        separate = square * self._base(positive, shape.m, coupling)
        separate = separate + (1 - 2 * mean + square) * self._base(TRIGONOMETRIC, shape.m, coupling)
        # HRF Theorem 3.1, for bases that share their vectors.
        return separate + 2 * (mean - square) * self._cross(positive, shape.m, coupling)

    def _base(self, base: Base, m: int, coupling: str) -> Doubles:
        key = (base, m, coupling)
        if key not in self._bases:
            independent = INDEPENDENT[base.name](base, self.pairs, m)
            self._bases[key] = self._variance(base, m, coupling, independent)
        return self._bases[key]

    def _variance(self, base: Base, m: int, coupling: str, independent: Doubles) -> Doubles:
        """The variance of a mean over m vectors, from the variance for independent vectors."""
        total = independent + self._covariances.added(base, base, coupling, m)
        little = total < LITTLE * independent
        # With random phases at least half of the variance remains: the phases are independent of each other.
        if base.name in ALIASES or self._covariances.closed(base, coupling) or not np.any(little):
            return total
        return np.where(little, self._covariances.variance(base, coupling, m), total)

    def _cross(self, positive: Base, m: int, coupling: str) -> Doubles:
        """The covariance of a positive estimator with the trigonometric one on the same vectors."""
        key = (positive, m, coupling)
        if key not in self._crosses:
            p = self.pairs
            if positive.name == "optimal_positive":
                independent = theory.optimal_positive_covariance(p.x, p.y, m, p.square)
            else:
                independent = theory.positive_covariance(p.x, p.y, m)
            added = self._covariances.added(positive, TRIGONOMETRIC, coupling, m)
            self._crosses[key] = independent + added
        return self._crosses[key]

    def _coefficient(self, shape: Shape, coupling: str) -> tuple[Doubles, Doubles]:
        """Mean and mean square of a hybrid's coefficient lambda."""
        n = shape.n
        if shape.name == ANGULAR:
            mean = self._angle / np.pi
            # HRF Lemma 3.2; lambda is (1 - mean of signs) / 2.
            return mean, mean**2 + self._variance(Base("signs"), n, coupling, 4 * mean * (1 - mean) / n) / 4
        sigma, radius = shape.base.sigma, shape.base.radius
        waves = Base("waves", sigma=sigma)
        rho = -np.expm1(-2 * (sigma * radius) ** 2)
        scaled = sigma**2 * self._square_distance
        mean = -np.expm1(-scaled / 2) / rho
        # HRF Theorem F.1; lambda is (1 - mean of waves) / rho.
        return mean, mean**2 + self._variance(waves, n, coupling, np.expm1(-scaled) ** 2 / (2 * n)) / rho**2
