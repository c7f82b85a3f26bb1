"""Families of maps: their special cases, their fits to data, and bad input."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import FeatureMap, attention, feature_map, fit, kernel_estimate, theory
from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.attention.clustered import COMPLEX, REAL, clustered_hybrid, gaussian_mixture_hybrid
from robopolicy.attention.discrete import (
    GEOMETRIC,
    POISSON,
    best_parameter,
    geometric,
    geometric_positive,
    poisson,
)
from robopolicy.attention.estimator import shared
from robopolicy.attention.exponential import complex_exponential, generalized_exponential
from robopolicy.attention.hybrid import (
    Coefficient,
    angular_hybrid,
    gaussian_coefficient,
    gaussian_hybrid,
    hybrid,
    signs,
)
from robopolicy.attention.positive import optimal_positive_estimator, positive, positive_antithetic_estimator
from robopolicy.attention.projections import iid
from robopolicy.attention.trigonometric import trigonometric, trigonometric_estimator

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

WIDTH = 4


def _both(made: FeatureMap, expected: FeatureMap, x, y) -> None:
    """The two maps estimate the same from the same vectors."""

    def estimate(fm: FeatureMap):
        return jit(lambda key: kernel_estimate(fm, fm.init(key, WIDTH), x, y))(jax.random.key(3))

    np.testing.assert_allclose(estimate(made), estimate(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (generalized_exponential(7, iid, A=0, s=1), positive(7, iid)),
        (generalized_exponential(7, iid, A=0, s=-1), trigonometric(7, iid)),
        (complex_exponential(7, 1, iid), positive(7, iid)),
        (complex_exponential(7, 1j, iid), trigonometric(7, iid)),
        (complex_exponential(7, 1j * np.eye(WIDTH), iid), trigonometric(7, iid)),
    ],
)
def test_exponential_families_contain_the_classic_maps(
    made: FeatureMap, expected: FeatureMap, tokens
) -> None:
    _both(made, expected, tokens(1, 3, WIDTH), tokens(2, 5, WIDTH, 0.7))


@pytest.mark.slow
def test_real_constants_of_least_variance_equal_the_closed_form(tokens) -> None:
    # Where the optimum over complex A is real, L-BFGS and the quadratic formula meet.
    x, y = tokens(1, 40, WIDTH), tokens(2, 50, WIDTH)
    best = generalized_exponential(7)
    found = fit(best, jax.random.key(0), x, y).constants[0]
    square = np.mean(np.sum((np.asarray(x)[:, None] + np.asarray(y)) ** 2, axis=-1))
    assert found.s == 1
    np.testing.assert_allclose(found.real, theory.optimal_constant(square, WIDTH), atol=2e-4)
    np.testing.assert_allclose(found.imaginary, 0, atol=2e-4)


def test_constants_without_data_are_the_best_for_unit_tokens_at_right_angles() -> None:
    drawn = generalized_exponential(3).init(jax.random.key(0), WIDTH).constants[0]
    A, (x, y) = complex(drawn.real, drawn.imaginary), np.eye(WIDTH)[:2]
    best, *others = (
        theory.generalized_exponential_mse(x, y, 1, A + step, int(drawn.s))
        for step in (0, 0.01, -0.01, 0.01j, -0.01j)
    )
    assert best < min(others)


@pytest.mark.slow
def test_optimal_positive_adapts_to_unmasked_tokens(tokens) -> None:
    fm = feature_map("optimal_positive(m=5)")
    features = fm.init(jax.random.key(0), WIDTH)
    x, y = tokens(1, 6, WIDTH, 0.8), tokens(2, 7, WIDTH, 1.7)
    mask = np.arange(7) % 3 != 0
    kept = np.asarray(y)[mask]
    adapted = fm.adapt(features, x, jnp.where(mask[:, None], y, 1e3), jnp.asarray(mask))
    square = np.mean(np.sum((np.asarray(x)[:, None] + kept) ** 2, axis=-1))
    np.testing.assert_allclose(adapted.constants[0], theory.optimal_constant(square, WIDTH), rtol=1e-5)
    np.testing.assert_allclose(features.constants[0], theory.optimal_constant(2.0, WIDTH), rtol=1e-5)


@pytest.mark.parametrize(
    ("distribution", "mse"), [(POISSON, theory.poisson_mse), (GEOMETRIC, theory.geometric_mse)]
)
def test_parameters_of_discrete_maps_are_of_least_variance(distribution, mse) -> None:
    x, y = 0.7 * np.random.default_rng(0).normal(size=(2, 1, WIDTH))
    best = best_parameter(distribution, x, y)
    errors = [mse(x[0], y[0], 1, best * factor) for factor in (0.97, 1.0, 1.03)]
    assert errors[1] < min(errors[0], errors[2])


def test_discrete_maps_are_drawn_for_tokens_of_length_one() -> None:
    # The best rate is then 1/d. The mean of 12,000 draws has a standard error of 0.005.
    drawn = poisson(3000).init(jax.random.key(0), WIDTH)
    assert float(drawn.omega.vectors.mean()) == pytest.approx(1 / WIDTH, abs=0.025)


@pytest.mark.slow
def test_shifted_maps_are_positive_for_all_tokens(tokens) -> None:
    x, y = 3 * tokens(1, 6, WIDTH), -2 * tokens(2, 7, WIDTH)
    for name in ("poisson_positive", "geometric_positive"):
        fm, unshifted = feature_map(f"{name}(m=30)"), feature_map(f"{name[:-9]}(m=30)")

        @jit
        def mapped(key, fm=fm, unshifted=unshifted):
            features = fm.adapt(fm.init(key, WIDTH), x, y, None)
            sides = fm.apply_q(features, x), fm.apply_k(features, y), unshifted.apply_q(features, x)
            return [side.values for side in sides]

        queries, keys, as_they_are = mapped(jax.random.key(0))
        assert np.all(queries >= 0)
        assert np.all(keys >= 0)
        assert np.any(as_they_are < 0)


@pytest.mark.slow
def test_shifts_follow_unmasked_tokens_only(tokens) -> None:
    fm = feature_map("poisson_positive(m=5)")
    features, mask = fm.init(jax.random.key(0), WIDTH), np.arange(7) % 3 != 0
    x, y = 2 + tokens(1, 6, WIDTH), 3 + tokens(2, 7, WIDTH)
    adapted = fm.adapt(features, x, jnp.where(mask[:, None], y, -100.0), jnp.asarray(mask))
    np.testing.assert_allclose(adapted.shift, fm.adapt(features, x, y[mask], None).shift, rtol=1e-5)


def _clusters(seed: int, norm: float = 1.0):
    """Two tight groups of tokens; coordinates of a centre have similar sizes, so no entry of A is clipped."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.5, 1.0, (2, WIDTH)) * rng.choice([-1.0, 1.0], (2, WIDTH))
    centres *= norm / np.linalg.norm(centres, axis=1, keepdims=True)
    return jnp.asarray(np.repeat(centres, 15, axis=0) + 0.05 * rng.normal(size=(30, WIDTH)), jnp.float32)


def _estimates(fm: FeatureMap, keys, x, y, draw) -> np.ndarray:
    """[keys, T, S], the estimates of one draw per key."""
    return np.asarray(jit(jax.vmap(lambda key: kernel_estimate(fm, draw(key), x, y)))(keys), np.float64)


FITTED = [name for name, mechanism in MECHANISMS.items() if {"rate", "p"} & mechanism.numbers.keys()]
FITTED += ["generalized_exponential", "clustered_hybrid", "gaussian_mixture_hybrid"]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name == "clustered_hybrid" else pytest.mark.full)
        for name in FITTED
    ],
)
def test_fitting_lowers_the_error_and_leaves_no_bias(name: str, small_spec) -> None:
    # Lengths away from one, for which the constants for unit tokens are not the best.
    x, y = _clusters(0, 0.5), _clusters(1, 2.5)
    exact = np.exp(np.asarray(x, np.float64) @ np.asarray(y, np.float64).T)
    fm = feature_map(small_spec(name))
    keys = jax.random.split(jax.random.key(1), 300)
    fitted = fit(fm, jax.random.key(0), x, y)
    before = _estimates(fm, keys, x, y, lambda key: fm.init(key, WIDTH))
    if "clusters" in getattr(fitted, "_fields", ()):
        # K-means is slow and finds the same clusters for every key, so only the vectors are drawn again.
        after = _estimates(fm, keys, x, y, lambda key: fm.init(key, WIDTH)._replace(clusters=fitted.clusters))
    else:
        estimate = jit(lambda features: kernel_estimate(fm, features, x, y))
        after = np.stack([np.asarray(estimate(fit(fm, key, x, y)), np.float64) for key in keys])
    # One number a draw: the mean over pairs. Five standard errors: 6e-7 of all seeds each.
    means = (after / exact).mean(axis=(1, 2))
    assert abs(means.mean() - 1) < 5 * means.std() / np.sqrt(len(keys)) + 1e-5
    assert np.mean((after - exact) ** 2) < np.mean((before - exact) ** 2)


@pytest.mark.slow
def test_clustered_hybrids_are_exact_at_the_centres() -> None:
    x, y = _clusters(0), _clusters(1)
    fm = clustered_hybrid(5, 2, 2, matrices=COMPLEX)
    features = fit(fm, jax.random.key(0), x, y)
    r, s = features.clusters.query_centres, features.clusters.key_centres
    estimate = jit(lambda features: kernel_estimate(fm, features, r, s))
    np.testing.assert_allclose(estimate(features), np.exp(r @ s.T), rtol=2e-4)


@pytest.mark.slow
def test_entries_of_clustered_matrices_are_bounded_by_the_ratio_of_lengths() -> None:
    # One coordinate of the query centre is nearly zero; keys are four times as long: the usual entry is 2.
    x = jnp.asarray(np.tile([[0.5, 1e-9, 0.5, 0.5]], (3, 1)), jnp.float32)
    y = -4 * jnp.asarray(np.tile([[0.5, 0.5, 0.5, 0.0]], (3, 1)), jnp.float32)
    features = fit(clustered_hybrid(2, 1, 1, matrices=REAL), jax.random.key(0), x, y)
    np.testing.assert_allclose(features.clusters.queries[0, 0, 0], [2.0, 4.0, 2.0, 1.0], rtol=1e-5)


@pytest.mark.slow
def test_coefficients_of_a_mixture_are_one_at_its_centres() -> None:
    # With one pair of clusters the rest has no weight there, and the estimate is that of the pair: exact.
    x, y = _clusters(0)[:15], _clusters(1)[:15]
    fm = gaussian_mixture_hybrid(5, 3, 1, 1)
    features = fit(fm, jax.random.key(0), x, y)
    r, s = features.clusters.query_centres, features.clusters.key_centres
    np.testing.assert_allclose(kernel_estimate(fm, features, r, s), np.exp(r @ s.T), rtol=2e-4)


@pytest.mark.slow
def test_hybrids_of_several_estimators_and_coefficients_are_unbiased(tokens) -> None:
    # Two coefficients of different kinds, three estimators on one draw.
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)), jnp.float32)
    near = gaussian_coefficient(3, matrix, 1.5)
    angle = Coefficient(0.5, signs(4))
    bases = [positive_antithetic_estimator, trigonometric_estimator, optimal_positive_estimator]
    made = hybrid([near, angle], shared(bases, 4, iid))
    x, y = tokens(1, 2, WIDTH, 0.7), tokens(2, 3, WIDTH, 0.7)
    keys = jax.random.split(jax.random.key(0), 5000)
    estimates = jit(jax.vmap(lambda key: kernel_estimate(made, made.init(key, WIDTH), x, y)))(keys)
    error = np.abs(estimates.mean(0) - jnp.exp(x @ y.T))
    # Six pairs at five standard errors: 4e-6 of all seeds.
    assert np.all(error < 5 * estimates.std(0) / np.sqrt(len(keys)))


@pytest.mark.slow
def test_gaussian_coefficients_are_one_at_opposite_vectors(tokens) -> None:
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(WIDTH, WIDTH)), jnp.float32)
    kernel = gaussian_coefficient(6, matrix, 0.5).kernel
    y = tokens(1, 3, WIDTH)
    features = kernel.init(jax.random.key(0), WIDTH)
    np.testing.assert_allclose(np.diagonal(kernel_estimate(kernel, features, -y @ matrix.T, y)), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: positive(0), "m is 0: it must be a positive integer"),
        (lambda: positive(-3), "m is -3"),
        (lambda: positive(2.5), "m is 2.5"),
        (lambda: positive(8.0), "m is 8.0"),
        (lambda: positive("8"), "m is '8': it must be a positive integer"),
        (lambda: positive(None), "m is None"),
        (lambda: trigonometric(True), "m is True"),
        (lambda: angular_hybrid(8, 0), "n is 0"),
        (lambda: gaussian_hybrid(8, -1), "n is -1"),
        (lambda: gaussian_hybrid(8, 8, sigma=0.0), "sigma is 0.0: it must be a finite number above 0"),
        (lambda: gaussian_hybrid(8, 8, radius=float("nan")), "radius is nan"),
        (lambda: gaussian_hybrid(8, 8, sigma="1"), "sigma is '1'"),
        (lambda: gaussian_hybrid(8, 8, sigma=True), "sigma is True"),
        (lambda: gaussian_hybrid(8, 8, sigma=1e-2, radius=1e-2), "their product must be 0.001 or more"),
        (lambda: gaussian_coefficient(4, 1.0, 0.0), "c is 0.0"),
        (lambda: complex_exponential(8, 0), "A is 0j: it must be finite and invertible"),
        (lambda: complex_exponential(8, np.ones((4, 4))), r"A is a matrix of shape \(4, 4\)"),
        (lambda: complex_exponential(8, np.ones((4, 3))), r"A has shape \(4, 3\)"),
        (lambda: complex_exponential(8, "1j"), "A is '1j': it must be a number or a square matrix"),
        (lambda: complex_exponential(8, None), "A is None"),
        (
            lambda: complex_exponential(8, np.eye(3)).init(jax.random.key(0), 4),
            r"A has shape \(3, 3\) .* width 4",
        ),
        (lambda: generalized_exponential(8, A=0.125, s=1), r"A is 0.125: .* Re\(1 - 8A\) above 0"),
        (lambda: generalized_exponential(8, A="1", s=1), "A is '1': it must be a number"),
        (lambda: generalized_exponential(8, A=0.0, s=2), "s is 2: it must be 1 or -1"),
        (lambda: generalized_exponential(8, A=0.1), "give both"),
        (lambda: poisson(8, rate=1e308), "rate is 1e.308: its size must be 1e.09 or less"),
        (lambda: poisson(8, rate=0.0), "rate is 0.0: it must be a finite number above 0"),
        (lambda: poisson(8, rate="1"), "rate is '1'"),
        (lambda: geometric(8, p=1.0), "p is 1.0: it must be a number above 0 and below 1"),
        (lambda: clustered_hybrid(8, 0, 2), "query_clusters is 0"),
        (lambda: gaussian_mixture_hybrid(8, 8, 2, 2, width=-1.0), "width is -1.0"),
        (
            lambda: fit(clustered_hybrid(8, 3, 2), jax.random.key(0), jnp.ones((2, 4)), jnp.ones((9, 4))),
            "queries are 2 t",
        ),
        (lambda: fit(positive(8), jax.random.key(0), jnp.ones((2, 4)), jnp.ones((9, 3))), "q has width 4"),
        *(
            (
                lambda fm=fm: fit(fm, jax.random.key(0), jnp.ones((2, 4)), jnp.full((9, 4), jnp.nan)),
                "^y has numbers that are not finite",
            )
            for fm in (generalized_exponential(8), poisson(8), geometric_positive(8, 0.5))
        ),
        (lambda: feature_map("generalized_exponential(m=8, A=0.2, s=1)"), "generalized_exponential: A is"),
        (lambda: feature_map("complex_exponential(m=8)"), "needs A, a complex number"),
        (lambda: feature_map("complex_exponential(m=8, A=blue)"), "A is 'blue'; it must be a complex number"),
        (lambda: feature_map("geometric(m=8, p=1.5)"), "geometric: p is 1.5"),
        (lambda: feature_map("poisson(m=8, coupling=iid)"), "poisson has no argument 'coupling'"),
    ],
)
def test_bad_input_is_refused_in_one_line(make, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_fitted_features_have_the_structure_of_drawn_ones(tokens) -> None:
    att = attention("clustered_hybrid(m=6, query_clusters=2, key_clusters=2)")
    q, k, v = tokens(1, 9, WIDTH), tokens(2, 12, WIDTH), tokens(3, 12, 3)
    features = att.fit(jax.random.key(0), q, k)
    assert np.all(np.isfinite(jit(att.apply)(features, q, k, v)))
    assert jax.tree.structure(features) == jax.tree.structure(att.init(jax.random.key(0), WIDTH))
