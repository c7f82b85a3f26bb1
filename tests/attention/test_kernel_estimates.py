"""Every map estimates exp(x.y) without bias, and as precisely as the papers say."""

import re
from collections.abc import Callable
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from robopolicy.attention import conformity, feature_map, kernel_estimate, theory
from robopolicy.attention.catalogue import MECHANISMS

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

WIDTH = 4
DRAWS = 10_000

# A z-score beyond 5 has probability 6e-7: with 36 pairs and some 60 specs, 1e-3 of all seeds raise an alarm.
# Squares of positive features have tails too heavy for that once |x + y| passes 1.2: MSEs use short vectors.
Z = 5.0


def _vectors() -> tuple[Array, Array]:
    """Six queries and six keys: lengths 0 to 1.2, with parallel, opposite and orthogonal pairs among them."""
    u, v = np.eye(WIDTH)[0], np.eye(WIDTH)[1]
    w = np.random.default_rng(0).normal(size=WIDTH)
    w /= np.linalg.norm(w)
    x = np.stack([u, -u, 0.5 * u, v, w, 0 * u])
    y = np.stack([u, -0.7 * u, 1.2 * v, w, -w, (u + v) / np.sqrt(2)])
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def _estimates(spec: str, x: Array, y: Array, seed: int = 0, draws: int = DRAWS) -> np.ndarray:
    """[draws, T, S], the estimated kernels of independent draws."""
    estimate = jax.vmap(partial(kernel_estimate, feature_map(spec)), in_axes=(0, None, None))
    return np.asarray(jit(estimate)(_draws(spec, seed, draws, x.shape[1]), x, y), np.float64)


@lru_cache
def _draws(spec: str, seed: int, draws: int, width: int):
    """Independent features for tokens of that width, on a leading axis."""
    keys = jax.random.split(jax.random.key(seed), draws)
    return jit(jax.vmap(lambda key: feature_map(spec).init(key, width)))(keys)


def _exact(x: Array, y: Array) -> np.ndarray:
    return np.exp(np.asarray(x, np.float64) @ np.asarray(y, np.float64).T)


# Signs of Hadamard transforms give Gaussian vectors in the limit of large widths only.
STRUCTURED = ("hadamard", "fast_simplex")


def test_kernel_estimates_are_unbiased(coupled_spec: str) -> None:
    structured = any(f"coupling={name}" in coupled_spec for name in STRUCTURED)
    width = 64 if structured else WIDTH
    x, y = (0.8 * jnp.pad(v, ((0, 0), (0, width - WIDTH))) for v in _vectors())
    if structured:
        # Their bias is largest along an axis, and data have dense directions.
        turn = np.linalg.qr(np.random.default_rng(1).normal(size=(width, width)))[0].astype(np.float32)
        x, y = x @ turn, y @ turn
    # Draws of Halton points run one after another, and those of structured vectors are wide.
    few = structured or "halton" in coupled_spec
    estimates = _estimates(coupled_spec, x, y, draws=DRAWS // 5 if few else DRAWS)
    error = np.abs(estimates.mean(0) - _exact(x, y))
    # The last term is float32's rounding, the only error of an estimator without variance.
    assert np.all(error <= Z * estimates.std(0) / np.sqrt(len(estimates)) + 1e-6 * _exact(x, y))


Mse = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _mean_square(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean(np.sum((x + y) ** 2, axis=-1)))


def _optimal(x: np.ndarray, y: np.ndarray, m: int) -> np.ndarray:
    return theory.optimal_positive_mse(x, y, m, _mean_square(x, y))


def _optimal_covariance(x: np.ndarray, y: np.ndarray, m: int) -> np.ndarray:
    return theory.optimal_positive_covariance(x, y, m, _mean_square(x, y))


def _shifted(mse: Callable[..., np.ndarray], parameter: float, m: int) -> Mse:
    def expected(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        both = np.concatenate([x.reshape(-1, WIDTH), y.reshape(-1, WIDTH)])
        # A thousandth of the range below the least coordinate, as in the map.
        shift = both.min(0) - 1e-3 * (1e-6 + np.ptp(both, axis=0))
        return theory.shifted(lambda a, b, m: mse(a, b, m, parameter), x, y, m, shift)

    return expected


# Closed forms of every mechanism; hybrids of many estimators have none.
MSES: dict[str, dict[str, Mse]] = {
    "trigonometric": {"m=5": lambda x, y: theory.trigonometric_mse(x, y, 5)},
    "trigonometric_phase": {"m=5": lambda x, y: theory.trigonometric_phase_mse(x, y, 5)},
    "positive": {"m=5": lambda x, y: theory.positive_mse(x, y, 5)},
    "positive_antithetic": {"m=5": lambda x, y: theory.positive_antithetic_mse(x, y, 5)},
    "optimal_positive": {"m=5": lambda x, y: _optimal(x, y, 5)},
    "generalized_exponential": {
        "m=5, A=-0.1+0.2j, s=1": lambda x, y: theory.generalized_exponential_mse(x, y, 5, -0.1 + 0.2j, 1),
        "m=5, A=0.05+0.1j, s=-1": lambda x, y: theory.generalized_exponential_mse(x, y, 5, 0.05 + 0.1j, -1),
    },
    "complex_exponential": {
        "m=5, A=0.9+0.5j": lambda x, y: theory.complex_exponential_mse(x, y, 5, 0.9 + 0.5j)
    },
    "poisson": {"m=5, rate=0.3": lambda x, y: theory.poisson_mse(x, y, 5, 0.3)},
    "poisson_positive": {"m=5, rate=0.5": _shifted(theory.poisson_mse, 0.5, 5)},
    "geometric": {"m=5, p=0.7": lambda x, y: theory.geometric_mse(x, y, 5, 0.7)},
    "geometric_positive": {"m=5, p=0.6": _shifted(theory.geometric_mse, 0.6, 5)},
    "angular_hybrid": {
        "m=3, n=2": lambda x, y: theory.angular_hybrid_mse(x, y, 3, 2),
        "m=2, n=5, base=positive": lambda x, y: theory.angular_hybrid_mse(x, y, 2, 5, theory.positive_mse),
        "m=3, n=2, base=optimal_positive": lambda x, y: theory.angular_hybrid_mse(
            x, y, 3, 2, _optimal, _optimal_covariance
        ),
    },
    "gaussian_hybrid": {"m=3, n=2, sigma=1.3": lambda x, y: theory.gaussian_hybrid_mse(x, y, 3, 2, 1.3)},
    "clustered_hybrid": {},
    "gaussian_mixture_hybrid": {},
}


def _mse_cases() -> list:
    """Specs and their closed forms: two in the quick part, one coupling per base in the slow part."""
    cases = []
    quick = ("angular_hybrid(m=3, n=2, coupling=iid)", "positive(m=6, coupling=orthogonal)")
    for name, settings in MSES.items():
        coupling = ", coupling=iid" if "coupling" in MECHANISMS[name].choices else ""
        cases += [(f"{name}({arguments}{coupling})", mse) for arguments, mse in settings.items()]
    for base in ("positive", "positive_antithetic", "trigonometric"):
        for coupling in ("orthogonal", "simplex"):
            # Six vectors of width four: one block that is full, and one that is not.
            mse = partial(conformity.coupled_mse, base, coupling, m=6)
            cases.append((f"{base}(m=6, coupling={coupling})", mse))
    full = ("positive(m=6, coupling=simplex)", "positive_antithetic(m=6, coupling=orthogonal)")
    full += ("trigonometric(m=6, coupling=orthogonal)",)
    return [
        pytest.param(
            *case,
            marks=() if case[0] in quick else pytest.mark.full if case[0] in full else pytest.mark.slow,
            id=case[0],
        )
        for case in cases
    ]


def test_every_mechanism_has_a_closed_form_except_clustered_ones() -> None:
    assert list(MSES) == list(MECHANISMS)
    none = [name for name, forms in MSES.items() if not forms]
    assert none == ["clustered_hybrid", "gaussian_mixture_hybrid"]


@pytest.mark.rest_slow
@pytest.mark.parametrize(("spec", "mse"), _mse_cases())
def test_means_are_exact_and_squared_errors_equal_those_of_the_papers(spec: str, mse: Mse) -> None:
    x, y = (0.55 * v for v in _vectors())
    # An angle needs two directions; the last query is the zero vector.
    x = x[:-1]
    draws = 4 * DRAWS
    deviations = _estimates(spec, x, y, seed=1, draws=draws) - _exact(x, y)
    # No bias: the last term is float32's rounding.
    assert np.all(np.abs(deviations.mean(0)) <= Z * deviations.std(0) / np.sqrt(draws) + 1e-6 * _exact(x, y))
    squares = deviations**2
    expected = mse(np.asarray(x, np.float64)[:, None], np.asarray(y, np.float64)[None])
    measured, error = squares.mean(0), squares.std(0) / np.sqrt(draws)
    assert np.all(np.abs(measured - expected) <= Z * error + 1e-10)
    # The comparison needs a precise measurement of the error.
    assert np.median(error / (measured + 1e-10)) < 0.03


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n == "clustered_hybrid" else pytest.mark.full, id=n)
        for n in MECHANISMS
    ],
)
def test_variance_falls_with_the_number_of_vectors(name: str, small_spec) -> None:
    x, y = (0.5 * v for v in _vectors())
    coupling = {"coupling": "iid"} if "coupling" in MECHANISMS[name].choices else {}
    # Constants of the closed forms: those for unit tokens give heavier tails for short ones.
    for setting in list(MSES[name])[:1]:
        coupling |= {a: v for a, v in re.findall(r"(\w+)=([^, ]+)", setting) if a not in "mn"}
    few, many = (_estimates(small_spec(name, **coupling, m=m), x, y).reshape(DRAWS, -1) for m in ("2", "8"))
    # One number a draw, so that its standard error is known: the sum over pairs of squared deviations.
    deviations = [np.sum((e - e.mean(0)) ** 2, axis=1) for e in (few, many)]
    ratio = deviations[0].mean() / deviations[1].mean()
    error = ratio * np.sqrt(sum((d.std() / d.mean()) ** 2 for d in deviations) / DRAWS)
    assert error < 0.3
    assert abs(ratio - 4) < Z * error


@pytest.mark.slow
def test_shared_projections_lower_the_error_as_in_the_theorem() -> None:
    # Orthogonal vectors of different lengths, where the covariance of the bases is half of the error.
    x, y = 1.1 * jnp.eye(WIDTH)[:1], 0.2 * jnp.eye(WIDTH)[1:2]
    squares = (_estimates("angular_hybrid(m=1, n=8, coupling=iid)", x, y)[:, 0, 0] - 1) ** 2
    error = Z * squares.std() / np.sqrt(DRAWS)
    assert abs(squares.mean() - theory.angular_hybrid_mse(x[0], y[0], 1, 8)) <= error
    mean_square_of_lambda = 0.25 + 0.25 / 8
    mses = theory.positive_antithetic_mse(x[0], y[0], 1) + theory.trigonometric_mse(x[0], y[0], 1)
    assert squares.mean() + error < mean_square_of_lambda * mses


@pytest.mark.slow
@pytest.mark.parametrize("base", ["positive_antithetic", "positive"])
def test_angular_hybrid_is_exact_at_both_ends(base: str, tokens) -> None:
    x = tokens(3, 3, WIDTH) * jnp.array([[0.5], [1.0], [1.5]])
    estimates = _estimates(f"angular_hybrid(m=6, n=3, base={base})", x, jnp.concatenate([x, -x]), draws=50)
    squares = np.array([0.25, 1.0, 2.25])
    for columns, exact in ((slice(3), np.exp(squares)), (slice(3, 6), np.exp(-squares))):
        diagonals = np.diagonal(estimates[:, :, columns], axis1=1, axis2=2)
        np.testing.assert_allclose(diagonals, np.tile(exact, (50, 1)), rtol=2e-5)


@pytest.mark.slow
def test_orthogonal_draws_estimate_better_than_independent_ones() -> None:
    x, y = _vectors()
    exact = np.exp(np.asarray(x @ y.T))
    errors = [
        np.mean((_estimates(f"positive_antithetic(m=4, coupling={c})", x, y, draws=4000) - exact) ** 2)
        for c in ("orthogonal", "iid")
    ]
    assert errors[0] < 0.95 * errors[1]


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ("trigonometric(m=8)", 16),
        ("trigonometric_phase(m=8)", 8),
        ("positive(m=8)", 8),
        ("positive_antithetic(m=8)", 16),
        ("optimal_positive(m=8)", 8),
        ("generalized_exponential(m=8)", 16),
        ("complex_exponential(m=8, A=1j)", 16),
        ("poisson(m=8)", 8),
        ("geometric_positive(m=8)", 8),
        ("angular_hybrid(m=8, n=8)", 288),
        ("angular_hybrid(m=8, n=4)", 160),
        ("angular_hybrid(m=8, n=8, base=positive)", 216),
        ("angular_hybrid(m=8, n=8, base=optimal_positive)", 216),
        ("gaussian_hybrid(m=8, n=8)", 544),
        ("clustered_hybrid(m=8, query_clusters=3, key_clusters=2)", 96),
        ("clustered_hybrid(m=8, query_clusters=3, key_clusters=2, matrices=real)", 48),
        # Four estimators with 2n-dimensional coefficients, and the rest: 4 * 8 * 16 + 33 * 16.
        ("gaussian_mixture_hybrid(m=8, n=4, query_clusters=2, key_clusters=2)", 4 * 8 * 16 + 33 * 16),
    ],
)
def test_maps_have_the_sizes_of_the_papers(spec: str, features: int) -> None:
    fm = feature_map(spec)

    def mapped(key: Array, x: Array) -> list[tuple[Array, Array]]:
        drawn = fm.init(key, 5)
        return [(side.values, side.log_scale) for side in (fm.apply_q(drawn, x), fm.apply_k(drawn, x))]

    for values, log_scale in jax.eval_shape(mapped, jax.random.key(0), jnp.ones((3, 5))):
        assert values.shape == (3, features)
        assert log_scale.shape == (3,)


def test_a_hybrid_draws_omega_and_tau_independently() -> None:
    drawn = feature_map("angular_hybrid(m=8, n=8)").init(jax.random.key(0), 5)
    tau, omega = jax.tree.leaves(drawn)
    assert tau.shape == omega.shape == (8, 5)
    assert not np.any(tau == omega)


def test_tokens_of_another_width_are_refused(spec: str) -> None:
    fm = feature_map(spec)
    with pytest.raises(ValueError, match=r"\(3, 5\); these features were drawn for \[tokens, 4\]"):
        fm.apply_q(fm.init(jax.random.key(0), 4), jnp.ones((3, 5)))
