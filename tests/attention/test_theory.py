"""Closed forms against one another and against what the papers say of them."""

from typing import Any

import jax
import numpy as np
import pytest
from scipy import integrate, special

from robopolicy.attention import attention, conformity, streaming, theory


def _on_sphere(theta: np.ndarray, radius: float, dim: int = 3) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.zeros((len(theta), dim)), np.zeros((len(theta), dim))
    x[:, 0] = radius
    y[:, 0], y[:, 1] = radius * np.cos(theta), radius * np.sin(theta)
    return x, y


def _largest_relative_error(radius: float, m: int) -> float:
    """HRF Eq. 26."""
    return np.sqrt(1 / (2 * m)) * np.exp(2 * radius**2) * -np.expm1(-4 * radius**2)


def _relative_error_on_sphere(theta: np.ndarray, radius: float, m: int) -> np.ndarray:
    """Of trigonometric features, and at pi - theta of positive antithetic ones, HRF Eq. 25."""
    half = np.sin(theta / 2) ** 2
    return -np.expm1(-4 * radius**2 * half) * np.exp(2 * radius**2 * half) / np.sqrt(2 * m)


THETA = np.linspace(0.01, np.pi - 0.01, 500)


@pytest.mark.parametrize("radius", [1.0, 1.5])
def test_relative_errors_on_a_sphere(radius: float) -> None:
    x, y = _on_sphere(THETA, radius)
    trigonometric = theory.relative_error(theory.trigonometric_mse(x, y, 7), x, y)
    positive = theory.relative_error(theory.positive_antithetic_mse(x, y, 7), x, y)
    np.testing.assert_allclose(trigonometric, _relative_error_on_sphere(THETA, radius, 7), rtol=1e-9)
    np.testing.assert_allclose(positive, _relative_error_on_sphere(np.pi - THETA, radius, 7), rtol=1e-9)
    largest = _largest_relative_error(radius, 7)
    assert trigonometric.max() < largest < trigonometric.max() * 1.001


@pytest.mark.parametrize("radius", [1.0, 1.5, 2.0])
@pytest.mark.parametrize(("m", "n"), [(8, 8), (8, 1), (10, 100)])
def test_the_angular_hybrid_stays_below_its_bound_and_below_its_parts(radius: float, m: int, n: int) -> None:
    x, y = _on_sphere(THETA, radius)
    hybrid = theory.relative_error(theory.angular_hybrid_mse(x, y, m, n), x, y)
    assert hybrid.max() <= theory.angular_hybrid_bound(radius, m, n)
    assert hybrid.max() < _largest_relative_error(radius, m)
    # Theorem 3.5: zero at both ends, like the root of the distance to them.
    x, y = _on_sphere(np.array([1e-6, 4e-6, np.pi - 4e-6, np.pi - 1e-6]), radius)
    ends = theory.relative_error(theory.angular_hybrid_mse(x, y, m, n), x, y)
    assert np.all(ends < 1e-2 * hybrid.max())
    np.testing.assert_allclose([ends[1] / ends[0], ends[2] / ends[3]], 2, rtol=1e-3)


def test_the_bound_of_the_angular_hybrid_by_hand() -> None:
    # One vector each: the terms in 1/pi cancel, and W is e^2 - e^-2.
    expected = np.sqrt(1 / np.sqrt(np.pi) / 2) * (np.exp(2) - np.exp(-2))
    np.testing.assert_allclose(theory.angular_hybrid_bound(1.0, 1, 1), expected, rtol=1e-12)


def test_a_shared_omega_lowers_the_error_for_different_lengths_only() -> None:
    x, y = _on_sphere(THETA, 1.0)
    both = (theory.positive_covariance, None)
    shared, apart = (theory.angular_hybrid_mse(x, 0.3 * y, 4, 3, cross=c) for c in both)
    assert np.all(shared < apart)
    shared, apart = (theory.angular_hybrid_mse(x, y, 4, 3, cross=c) for c in both)
    np.testing.assert_allclose(shared, apart, rtol=1e-12)


def test_the_gaussian_hybrid_is_exact_at_angle_zero_only() -> None:
    x, y = _on_sphere(np.array([1e-7, np.pi - 1e-7]), 1.0)
    near, far = theory.gaussian_hybrid_mse(x, y, 4, 3)
    assert near < 1e-12
    assert far > 1e-4


def test_generalised_features_contain_the_others() -> None:
    x, y = _on_sphere(THETA, 1.2)
    general = theory.generalized_exponential_mse
    np.testing.assert_allclose(general(x, y, 3, 0, 1), theory.positive_mse(x, y, 3), rtol=1e-7)
    np.testing.assert_allclose(general(x, y, 3, 0, -1), theory.trigonometric_mse(x, y, 3), rtol=1e-7)
    for A in (1, 1j):
        expected = theory.positive_mse if A == 1 else theory.trigonometric_mse
        found = theory.complex_exponential_mse(x, y, 3, A)
        np.testing.assert_allclose(found, expected(x, y, 3), rtol=1e-7, atol=1e-9)


def test_the_optimal_constant_is_a_minimum() -> None:
    x, y = _on_sphere(np.array([0.3, 1.0, 2.5]), 1.3)
    for pair in zip(x, y, strict=True):
        best = theory.optimal_constant(np.sum((pair[0] + pair[1]) ** 2), 3)
        errors = [theory.generalized_exponential_mse(*pair, 1, best + step, 1) for step in (-1e-3, 0.0, 1e-3)]
        assert errors[1] < min(errors[0], errors[2])
        np.testing.assert_allclose(errors[1], theory.optimal_positive_mse(*pair, 1), rtol=1e-9)


def test_optimal_positive_varies_less_by_e_to_the_60() -> None:
    # CRT Fig. 1: d = 64, |x + y|^2 = 100.
    x, y = np.zeros(64), np.zeros(64)
    x[0] = 10
    ratio = theory.optimal_positive_mse(x, y, 1) / theory.positive_mse(x, y, 1)
    assert np.log(ratio) < -60


def test_simplex_vectors_near_the_origin() -> None:
    # SimRF section 5.1: the ratio of errors in the limit |x + y| -> 0, for m = d.
    log_sine = 2 * special.gammaln(65 / 2) - special.gammaln(33) - special.gammaln(32)
    limit = -np.expm1(log_sine)
    assert round(limit, 4) == 0.0078
    x = np.zeros(64)
    x[0] = 1e-3
    ratio = conformity.coupled_mse("positive", "simplex", x, 0 * x, 64) / theory.positive_mse(x, 0 * x, 64)
    np.testing.assert_allclose(ratio, limit, rtol=1e-3)


@pytest.mark.parametrize("dim", [2, 5, 64])
def test_simplex_beats_orthogonal_beats_independent(dim: int) -> None:
    x = np.zeros((5, dim))
    x[:, 0] = [0.1, 0.5, 1, 2, 4]
    simplex, orthogonal = (
        conformity.coupled_mse("positive", coupling, x, 0 * x, dim) for coupling in ("simplex", "orthogonal")
    )
    assert np.all(simplex < orthogonal)
    assert np.all(orthogonal < theory.positive_mse(x, 0 * x, dim))


def test_orthogonal_trigonometric_features_approach_the_limit_of_large_widths() -> None:
    z = np.array([0.5, 1.0, 2.0, 3.0])
    for dim, tolerance in ((16, 0.1), (256, 0.01)):
        x = np.zeros((4, dim))
        x[:, 0] = z
        ratio = conformity.coupled_mse("trigonometric", "orthogonal", x, 0 * x, dim)
        ratio = ratio / theory.trigonometric_mse(x, 0 * x, dim)
        limit = conformity.orthogonal_variance_ratio(z, dim, dim)
        np.testing.assert_allclose(ratio, limit, atol=tolerance)
    np.testing.assert_array_equal(conformity.orthogonal_variance_ratio(z, 1, 16), 1.0)  # no two vectors


def test_conformity_equals_that_of_sampled_vectors() -> None:
    rng = np.random.default_rng(0)
    lengths = np.sqrt(rng.chisquare(3, size=(2, 20_000)))
    pairs = np.zeros((20_000, 2, 3))
    pairs[:, 0, 0] = lengths[0]
    pairs[:, 1, 0], pairs[:, 1, 1] = -0.5 * lengths[1], np.sqrt(0.75) * lengths[1]
    found = [conformity.empirical_conformity(pair, 1.0) for pair in pairs]
    # Five standard errors: 6e-7 of all seeds.
    error = 5 * np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found) - conformity.conformity(1.0, 3, -0.5)) < error


@pytest.mark.parametrize("dim", [2, 3, 4, 8, 512])
def test_conformity_equals_the_integral_of_the_paper(dim: int) -> None:
    square, cosine = 25.0, -1 / (dim - 1)

    def density(phi: float) -> float:
        return np.sin(phi) ** (dim - 1)

    def value(phi: float) -> float:
        return density(phi) * special.hyp1f1(dim, dim / 2, square * (1 + cosine * np.sin(phi)) / 2)

    above, below = (integrate.quad(f, 0, np.pi, epsabs=0, epsrel=1e-12)[0] for f in (value, density))
    np.testing.assert_allclose(conformity.conformity(square, dim, cosine), above / below, rtol=1e-11)


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    "name",
    [
        *("trigonometric", "trigonometric_phase"),
        *("positive", "positive_antithetic", "optimal_positive"),
    ],
)
def test_the_error_of_a_read_is_that_of_draws(name: str) -> None:
    rng = np.random.default_rng(0)
    tokens, m, decay, draws = 6, 64, 0.8, 3000
    x, y = rng.standard_normal(4), rng.standard_normal((tokens, 4))
    x, y = 0.7 * x / np.linalg.norm(x), 0.7 * y / np.linalg.norm(y, axis=1, keepdims=True)
    values, weights = rng.standard_normal(tokens), decay ** np.arange(tokens - 1.0, -1, -1)
    more = {"square": 2.0} if name == "optimal_positive" else {}  # that of a memory's draw
    covariances = getattr(theory, f"{name}_covariances")(x, y, m, **more)
    np.testing.assert_allclose(
        np.diag(covariances), getattr(theory, f"{name}_mse")(x, y, m, **more), rtol=1e-9
    )
    spec = f"{name}(m={m}, coupling=iid)"
    memory = streaming(spec, decay)

    def read(key: jax.Array) -> jax.Array:
        draw = attention(spec).init(key, 4)

        def write(state: Any, token: Any) -> tuple[Any, None]:
            return memory.update(draw, state, *token), None

        written = y.astype(np.float32)[:, None], values.astype(np.float32)[:, None, None]
        state, _ = jax.lax.scan(write, memory.init(draw, 4, 1, 1), written)
        return memory.read(draw, state, x.astype(np.float32)[None])[0, 0]

    found = jax.jit(jax.vmap(read))(jax.random.split(jax.random.key(1), draws))
    exact = weights * theory.kernel(x, y)
    error = np.mean((np.asarray(found, np.float64) - exact @ values / exact.sum()) ** 2)
    # Five standard errors of a mean of squares are 13 %; the first order leaves out less than that.
    np.testing.assert_allclose(theory.read_mse(x, y, values, weights, covariances), error, rtol=0.2)


def test_unknown_closed_forms_are_refused() -> None:
    with pytest.raises(ValueError, match="base is 'poisson': there are closed forms for positive, "):
        conformity.coupled_mse("poisson", "simplex", np.ones(3), np.ones(3), 4)
    with pytest.raises(ValueError, match="coupling is 'halton'"):
        conformity.coupled_mse("positive", "halton", np.ones(3), np.ones(3), 4)
