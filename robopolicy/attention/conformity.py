"""Closed-form errors of coupled projection vectors: orthogonal blocks and simplex blocks.

Two vectors of one block have a fixed angle and independent chi norms. The variance from such a pair depends
on its conformity, the mean of exp(omega_1.v) exp(omega_2.v) with |v|^2 = square. For positive features v is
real, for trigonometric ones imaginary, so `square` is negative. Source: SimRF sections 3 and 4.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from robopolicy.attention.theory import (
    Doubles,
    Mse,
    kernel,
    positive_antithetic_mse,
    positive_mse,
    trigonometric_mse,
)

ORTHOGONAL, SIMPLEX = "orthogonal", "simplex"


def conformity(square: ArrayLike, dim: int, cosine: float) -> Doubles:
    """E[exp(omega_1.v) exp(omega_2.v)] for vectors at an angle of that cosine (SimRF Eq. 21).

    The sum of the series of Eq. 23 (cosine 0) and Eq. 24 (cosine -1/(d - 1)): the average of 1F1(d; d/2; v^2
    (1 + cosine sin phi)/2) over phi with density proportional to sin(phi)^(d - 1).

    Args:
      square: |v|^2, any shape; negative for imaginary v.
      dim: d.
      cosine: of the angle between the two vectors.
    """
    # Gauss-Legendre nodes in phi, nine standard deviations to each side of its mean pi/2, or all the way.
    nodes, weights = np.polynomial.legendre.leggauss(64)
    sines = np.sin(np.pi / 2 * (1 + min(1, 6 / dim**0.5) * nodes))
    weights = weights * sines ** (dim - 1)
    v = np.asarray(square, np.float64)[..., None]
    values = special.hyp1f1(dim, dim / 2, v * (1 + cosine * sines) / 2)
    return values @ (weights / weights.sum())


def iid_conformity(square: ArrayLike) -> Doubles:
    """E[exp(omega_1.v) exp(omega_2.v)] = exp(v^2) for independent vectors (SimRF Eq. 19)."""
    return np.exp(np.asarray(square, np.float64))


def coupled_mse(base: str, coupling: str, x: ArrayLike, y: ArrayLike, m: int) -> Doubles:
    """MSE of m vectors in blocks of D, for x and y [..., D].

    SimRF Theorem 3.2 (Eq. 11) for `positive`; Theorem 4.5 (Eq. 26) for `trigonometric`. The latter holds for
    any angle if both omega_1 + omega_2 and omega_1 - omega_2 count, and so for `positive_antithetic` too.

    Args:
      base: `positive`, `positive_antithetic` or `trigonometric`.
      coupling: `orthogonal` or `simplex`.

    Raises ValueError for any other base or coupling.
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    dim = a.shape[-1]
    cosines = {ORTHOGONAL: 0.0, SIMPLEX: 0.0 if dim == 1 else -1 / (dim - 1)}
    for name, value, known in (("base", base, BASES), ("coupling", coupling, cosines)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: there are closed forms for {', '.join(known)}")
    iid_mse, sign, both = BASES[base]
    square = sign * np.sum((a + sign * b) ** 2, axis=-1)
    mean = conformity(square, dim, cosines[coupling])
    if both:
        mean = (mean + conformity(square, dim, -cosines[coupling])) / 2
    # Both estimators are scale * exp(omega.v) on average over omega, and SM = scale * exp(v^2 / 2).
    scale = kernel(a, b) ** 2 / iid_conformity(square)
    full, rest = divmod(m, dim)
    pairs = full * dim * (dim - 1) + rest * (rest - 1)
    return iid_mse(a, b, m) + pairs / m**2 * scale * (mean - iid_conformity(square))


BASES: dict[str, tuple[Mse, int, bool]] = {
    "positive": (positive_mse, 1, False),
    "positive_antithetic": (positive_antithetic_mse, 1, True),
    "trigonometric": (trigonometric_mse, -1, True),
}
"""MSE of independent vectors, the sign s of v^2 = s |x + s y|^2, and whether -omega counts like omega."""


def orthogonal_variance_ratio(z: ArrayLike, m: int, dim: int) -> Doubles:
    """Variance of orthogonal over independent sin/cos features at |x - y| = z, large d (ORF Eq. 3)."""
    square = np.asarray(z, np.float64) ** 2
    return 1 - (m - 1) * np.exp(-square) * square**2 / (dim * np.expm1(-square) ** 2)


def empirical_conformity(vectors: ArrayLike, v: float) -> float:
    """SimRF Eq. 10 for one set of vectors [m, D], averaged over its rotations, at |x + y| = v."""
    omega = np.asarray(vectors, np.float64)
    m, dim = omega.shape
    sums = omega[:, None] + omega[None, :]
    squares = np.sum(sums**2, axis=-1)[~np.eye(m, dtype=bool)]
    return float(np.mean(special.hyp0f1(dim / 2, v**2 * squares / 4)))
