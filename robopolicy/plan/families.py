"""The mechanisms that a plan compares.

These are the `MECHANISMS` whose error has a formula. Clustered hybrids have none, since it depends on
their centres. Positive discrete maps have none, since they shift by the smallest coordinate. Sizes
are powers of two. Constants minimise the variance for the pairs, but for PHASES and WIDTHS.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from robopolicy.attention import canonical
from robopolicy.attention.catalogue import COUPLINGS, POSITIVE_BASES
from robopolicy.attention.discrete import GEOMETRIC, POISSON, best_parameter
from robopolicy.attention.exponential import best_exponent
from robopolicy.plan.covariances import STRUCTURED, padded
from robopolicy.plan.pairs import Pairs
from robopolicy.plan.vectors import Base

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HYBRID_SIZES, COEFFICIENT_SIZES = SIZES[:7], SIZES[:5]
ANGULAR, GAUSSIAN = "angular_hybrid", "gaussian_hybrid"
DISCRETE = ("poisson", "geometric")
PHASES = (np.pi / 8, np.pi / 4, 3 * np.pi / 8)  # of A, between those of `positive` and `trigonometric`
WIDTHS = (0.5, 1.0)  # sigma of a Gaussian hybrid
MOST_P = 0.9999  # of geometric maps: p must be below 1
LEAST_PADDED = 8  # the bias of smaller Hadamard matrices is no longer small, see attention/structured.py


class Shape(NamedTuple):
    """A mechanism without its coupling.

    Attributes:
      name: its name in `MECHANISMS`.
      m: number of vectors of a base estimator.
      n: number of vectors of a hybrid's coefficient, else 0.
      base: the estimator and its constants; for a hybrid the positive one, with the coefficient's sigma.
      arguments: the other arguments of its spec, as text.
    """

    name: str
    m: int
    n: int
    base: Base
    arguments: str = ""

    def spec(self, coupling: str) -> str:
        """The canonical spec with this coupling."""
        counts = f"m={self.m}" + (f", n={self.n}" if self.n else "") + self.arguments
        vectors = "" if self.name in DISCRETE else f", coupling={coupling}"
        return canonical(f"{self.name}({counts}{vectors})")


def shapes(pairs: Pairs) -> Iterator[Shape]:
    """Every mechanism to compare for queries and keys like `pairs`."""
    for base, arguments in _bases(pairs):
        for m in SIZES:
            yield Shape(base.name, m, 0, base, arguments)
    length = float(np.mean([np.linalg.norm(a, axis=1).mean() for a in (pairs.x, pairs.y)]))
    for positive in POSITIVE_BASES:
        for m in HYBRID_SIZES:
            for n in COEFFICIENT_SIZES:
                yield Shape(ANGULAR, m, n, Base(positive), f", base={positive}")
                for sigma in WIDTHS:
                    arguments = f", base={positive}, sigma={sigma:g}, radius={length:.3g}"
                    gaussian = Base(positive, sigma=sigma, radius=float(f"{length:.3g}"))
                    yield Shape(GAUSSIAN, m, n, gaussian, arguments)


def couplings(shape: Shape, dim: int) -> list[str]:
    """The couplings that a shape allows for tokens of width `dim`."""
    if shape.name in DISCRETE:
        return ["iid"]
    return [c for c in COUPLINGS if c not in STRUCTURED or padded(dim) >= LEAST_PADDED]


def _bases(pairs: Pairs) -> Iterator[tuple[Base, str]]:
    for name in ("trigonometric", "trigonometric_phase", *POSITIVE_BASES):
        yield Base(name), ""
    sums, differences = (float(np.mean(np.sum((pairs.x + s * pairs.y) ** 2, axis=1))) for s in (1, -1))
    A, s = best_exponent(sums, differences, (sums + differences) / 2, pairs.dim)
    A = complex(round(A.real, 4), round(A.imag, 4))
    yield Base("generalized_exponential", A=A, s=s), f", A={A.real}{A.imag:+}j, s={s}"
    for phase in PHASES:
        A = complex(*(round(float(f(phase)), 3) for f in (np.cos, np.sin)))
        yield Base("complex_exponential", A=A), f", A={A.real}{A.imag:+}j"
    for name, distribution, most in (("poisson", POISSON, np.inf), ("geometric", GEOMETRIC, MOST_P)):
        parameter = min(float(f"{best_parameter(distribution, pairs.x, pairs.y):.4g}"), most)
        yield Base(name, parameter=parameter), f", {distribution.parameter}={parameter!r}"
