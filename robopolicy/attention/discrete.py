"""Discretely induced features: one random term of the power series of exp(x.y) (CRT section 3.2).

    f(x) = prod_l x_l^omega_l / sqrt(omega_l! p(omega_l)),  omega_l drawn from p on 0, 1, 2, ...

p is Poisson or geometric. Its parameter is part of the draw: `init` uses the best one for tokens of unit
length in random directions, `fit` the best for given data. Features have signs. The `_positive` maps shift
tokens until no coordinate is negative, which leaves the Gaussian kernel unchanged (CRT 3.2.3).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import gammaln
from numpy.typing import ArrayLike, NDArray

from robopolicy.attention.base import FeatureMap, ScaledFeatures, check_finite, unchanged
from robopolicy.attention.projections import Dense, along, check_counts, check_positive, check_width

LOG_ZERO = -80.0  # replaces the logarithm of zero: a coordinate of zero counts as e^-80
MARGIN = 1e-3  # distance between a shift and the least coordinate, as a share of the range of coordinates


class Powers(NamedTuple):
    """Features of the maps in this file.

    Attributes:
      omega: the powers [m, D], as a projection of the logarithms of coordinates.
      log_weights: [m], -log(omega! p(omega)) / 2 summed over coordinates.
      shift: [D], subtracted from every token; zero for the signed maps.
    """

    omega: Dense
    log_weights: Array
    shift: Array


class Distribution(NamedTuple):
    """A distribution p on 0, 1, 2, ... with one parameter.

    Attributes:
      parameter: its name.
      below: the upper bound of the parameter, exclusive; the lower bound is 0.
      draw: (key, shape, parameter) -> omega.
      log_weights: (omega, parameter) -> -log(omega! p(omega)) / 2.
      best: (xs[D], ys[D], squares[D]) -> the parameter of least variance, from the mean |x_l|, the mean
        |y_l| and the product of the means of x_l^2 and y_l^2 (CRT Eq. 12, 14).
    """

    parameter: str
    below: float
    draw: Callable[[Array, tuple[int, int], float], Array]
    log_weights: Callable[[Array, float], Array]
    best: Callable[[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], float]


def poisson(m: int, rate: float | None = None) -> FeatureMap:
    """PoisRF (CRT 3.2.1): omega_l ~ Poisson(rate), m signed features. `rate` None is optimised.

    Raises ValueError for a rate outside [1e-9, 1e9].
    """
    return _signed(m, POISSON, rate)


def geometric(m: int, p: float | None = None) -> FeatureMap:
    """GeomRF (CRT 3.2.2): P(omega_l = k) = p (1 - p)^k, m signed features. `p` None is optimised.

    Raises ValueError for a p outside [1e-9, 1).
    """
    return _signed(m, GEOMETRIC, p)


def poisson_positive(m: int, rate: float | None = None) -> FeatureMap:
    """PoisRF+ (CRT 3.2.3): `poisson` on tokens shifted to positive coordinates; m positive features.

    Raises ValueError as `poisson`.
    """
    return _shifted(m, POISSON, rate)


def geometric_positive(m: int, p: float | None = None) -> FeatureMap:
    """GeomRF+ (CRT 3.2.3): `geometric` on tokens shifted to positive coordinates; m positive features.

    Raises ValueError as `geometric`.
    """
    return _shifted(m, GEOMETRIC, p)


def _signed(m: int, distribution: Distribution, parameter: float | None) -> FeatureMap:
    _check(m, distribution, parameter)

    def init(key: Array, dim: int) -> Powers:
        # Coordinates of a random unit vector: mean square 1/d, mean size sqrt(2 / (pi d)).
        size, square = np.full(dim, math.sqrt(2 / (math.pi * dim))), np.full(dim, 1 / dim**2)
        return _draw(key, m, dim, distribution, parameter or distribution.best(size, size, square))

    def fit(key: Array, x: Array, y: Array) -> Powers:
        check_finite(x, y)
        return _draw(key, m, x.shape[1], distribution, parameter or best_parameter(distribution, x, y))

    def apply(features: Powers, x: Array) -> ScaledFeatures:
        return _raised(features, x, jnp.zeros(len(x)))

    return FeatureMap(init, apply, apply, unchanged, fit)


def _shifted(m: int, distribution: Distribution, parameter: float | None) -> FeatureMap:
    _check(m, distribution, parameter)

    def init(key: Array, dim: int) -> Powers:
        # Few coordinates of random unit vectors are below -3 / sqrt(d), and none below -1. From a shift of
        # `reach` their mean is `reach`, and their mean square exceeds its square by 1/d.
        reach = min(1.0, 3 / math.sqrt(dim)) + MARGIN
        size, square = np.full(dim, reach), np.full(dim, (reach**2 + 1 / dim) ** 2)
        drawn = _draw(key, m, dim, distribution, parameter or distribution.best(size, size, square))
        return drawn._replace(shift=jnp.full(dim, -reach))

    def fit(key: Array, x: Array, y: Array) -> Powers:
        check_finite(x, y)
        shift = _below(x, y, None)
        best = parameter or best_parameter(distribution, x - shift, y - shift)
        return _draw(key, m, x.shape[1], distribution, best)._replace(shift=shift)

    def adapt(features: Powers, x: Array, y: Array, mask: Array | None) -> Powers:
        return features._replace(shift=_below(x, y, mask))

    def apply(features: Powers, x: Array) -> ScaledFeatures:
        check_width(x, len(features.shift))
        shifted = x - features.shift
        # exp(x.y) = exp(|x|^2/2) K(x - c, y - c) exp(|y|^2/2) with the Gaussian kernel K.
        return _raised(features, shifted, (jnp.sum(x * x, axis=-1) - jnp.sum(shifted**2, axis=-1)) / 2)

    return FeatureMap(init, apply, apply, adapt, fit)


def _check(m: int, distribution: Distribution, parameter: float | None) -> None:
    check_counts(m=m)
    if parameter is not None:
        check_positive(distribution.below, **{distribution.parameter: parameter})


def _draw(key: Array, m: int, dim: int, distribution: Distribution, parameter: float) -> Powers:
    omega = distribution.draw(key, (m, dim), parameter).astype(jnp.float32)
    return Powers(Dense(omega), jnp.sum(distribution.log_weights(omega, parameter), axis=1), jnp.zeros(dim))


def _raised(features: Powers, x: Array, log_scale: Array) -> ScaledFeatures:
    """prod_l x_l^omega_l times the weights, computed from logarithms and the parity of negative factors."""
    size = jnp.abs(x)
    logs = jnp.where(size > 0, jnp.log(jnp.where(size > 0, size, 1.0)), LOG_ZERO)
    exponents = along(features.omega, logs) + features.log_weights
    odd = jnp.mod(along(features.omega, (x < 0).astype(x.dtype)), 2.0)
    peak = jax.lax.stop_gradient(jnp.max(exponents, axis=-1))
    values = (1 - 2 * odd) * jnp.exp(exponents - peak[..., None])
    return ScaledFeatures.of(values, peak + log_scale - math.log(features.omega.shape[0]) / 2)


def _below(x: Array, y: Array, mask: Array | None) -> Array:
    """[D], just below the least coordinate of any query or unmasked key."""
    least, largest = jnp.min(x, axis=0), jnp.max(x, axis=0)
    low, high = y, y
    if mask is not None:
        low, high = (jnp.where(mask[:, None], y, masked) for masked in (jnp.inf, -jnp.inf))
    least = jnp.minimum(least, jnp.min(low, axis=0))
    largest = jnp.maximum(largest, jnp.max(high, axis=0))
    return least - MARGIN * (1e-6 + largest - least)


def best_parameter(distribution: Distribution, x: ArrayLike, y: ArrayLike) -> float:
    """The parameter of least variance for data like x [T, D] and y [S, D]."""
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    squares = np.mean(a**2, axis=0) * np.mean(b**2, axis=0)
    return distribution.best(np.mean(np.abs(a), axis=0), np.mean(np.abs(b), axis=0), squares)


def poisson_rate(xs: NDArray[np.float64], ys: NDArray[np.float64], squares: NDArray[np.float64]) -> float:
    """sqrt(sum_l x_l^2 y_l^2 / d), the minimum of CRT Eq. 11, but at least 1e-6: zero is not allowed."""
    return max(1e-6, float(np.sqrt(np.mean(squares))))


def geometric_p(xs: NDArray[np.float64], ys: NDArray[np.float64], squares: NDArray[np.float64]) -> float:
    """The p of least variance (CRT Eq. 13), by Brent's method."""
    from scipy.optimize import minimize_scalar
    from scipy.special import i0e

    def log_moment(logit: float) -> float:
        rest = 1 / (1 + math.exp(logit))
        z = 2 * xs * ys / math.sqrt(rest)
        return float(-len(xs) * math.log1p(-rest) + np.sum(np.log(i0e(z)) + z))

    logit = minimize_scalar(log_moment, bounds=(-14.0, 14.0), method="bounded", options={"maxiter": 100}).x
    return 1 / (1 + math.exp(-logit))


POISSON = Distribution(
    "rate",
    math.inf,
    draw=lambda key, shape, rate: jax.random.poisson(key, rate, shape),
    # omega! p(omega) = exp(-rate) rate^omega.
    log_weights=lambda omega, rate: (rate - omega * math.log(rate)) / 2,
    best=poisson_rate,
)
GEOMETRIC = Distribution(
    "p",
    1.0,
    draw=lambda key, shape, p: jax.random.geometric(key, p, shape) - 1,
    log_weights=lambda omega, p: -(gammaln(omega + 1) + math.log(p) + omega * math.log1p(-p)) / 2,
    best=geometric_p,
)
