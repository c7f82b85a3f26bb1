"""Every map estimates exp(x.y) without bias, and as precisely as the papers say."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from robopolicy.attention import feature_map, kernel_estimate, theory

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

WIDTH = 4
DRAWS = 10_000

# A z-score beyond 5 has probability 6e-7: with 36 pairs and 9 specs, 2e-4 of all seeds raise a false alarm.
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
    return np.asarray(jit(estimate)(_draws(spec, seed, draws), x, y), np.float64)


@lru_cache
def _draws(spec: str, seed: int, draws: int):
    """Independent features for tokens of width WIDTH, on a leading axis."""
    keys = jax.random.split(jax.random.key(seed), draws)
    return jit(jax.vmap(lambda key: feature_map(spec).init(key, WIDTH)))(keys)


def test_kernel_estimates_are_unbiased(coupled_spec: str) -> None:
    x, y = _vectors()
    estimates = _estimates(coupled_spec, x, y)
    exact = np.exp(np.asarray(x, np.float64) @ np.asarray(y, np.float64).T)
    error = np.abs(estimates.mean(0) - exact)
    # The last term is float32's rounding, which is all there is where an estimator has no variance.
    assert np.all(error <= Z * estimates.std(0) / np.sqrt(DRAWS) + 1e-6 * exact)


MSES = {
    "trigonometric(m=5, coupling=iid)": lambda x, y: theory.trigonometric_mse(x, y, 5),
    "positive(m=5, coupling=iid)": lambda x, y: theory.positive_mse(x, y, 5),
    "positive_antithetic(m=5, coupling=iid)": lambda x, y: theory.positive_antithetic_mse(x, y, 5),
    "angular_hybrid(m=3, n=2, coupling=iid)": lambda x, y: theory.angular_hybrid_mse(x, y, 3, 2),
    "angular_hybrid(m=2, n=5, coupling=iid, base=positive)": lambda x, y: theory.angular_hybrid_mse(
        x, y, 2, 5, theory.positive_mse
    ),
}


@pytest.mark.parametrize("spec", MSES)
def test_mean_squared_errors_are_those_of_the_papers(spec: str) -> None:
    x, y = (0.55 * v for v in _vectors())
    draws = 4 * DRAWS
    squares = (_estimates(spec, x, y, seed=1, draws=draws) - np.exp(np.asarray(x @ y.T, np.float64))) ** 2
    # An angle needs two directions; the last query is the zero vector.
    expected = MSES[spec](np.asarray(x)[:-1, None], np.asarray(y)[None])
    measured, error = squares[:, :-1].mean(0), squares[:, :-1].std(0) / np.sqrt(draws)
    assert np.all(np.abs(measured - expected) <= Z * error + 1e-10)
    # The comparison is worth something only where the error is known well.
    assert np.median(error / (measured + 1e-10)) < 0.02


def test_sharing_projections_lowers_the_error_as_the_theorem_says() -> None:
    # Orthogonal vectors of different lengths, where the covariance of the bases is half of the error.
    x, y = 1.1 * jnp.eye(WIDTH)[:1], 0.2 * jnp.eye(WIDTH)[1:2]
    squares = (_estimates("angular_hybrid(m=1, n=8, coupling=iid)", x, y)[:, 0, 0] - 1) ** 2
    error = Z * squares.std() / np.sqrt(DRAWS)
    assert abs(squares.mean() - theory.angular_hybrid_mse(x[0], y[0], 1, 8)) <= error
    mean_square_of_lambda = 0.25 + 0.25 / 8
    mses = theory.positive_antithetic_mse(x[0], y[0], 1) + theory.trigonometric_mse(x[0], y[0], 1)
    assert squares.mean() + error < mean_square_of_lambda * mses


@pytest.mark.parametrize("base", ["positive", "positive_antithetic"])
def test_angular_hybrid_is_exact_at_both_ends(base: str, tokens) -> None:
    x = tokens(3, 3, WIDTH) * jnp.array([[0.5], [1.0], [1.5]])
    estimates = _estimates(f"angular_hybrid(m=6, n=3, base={base})", x, jnp.concatenate([x, -x]), draws=50)
    squares = np.array([0.25, 1.0, 2.25])
    for columns, exact in ((slice(3), np.exp(squares)), (slice(3, 6), np.exp(-squares))):
        diagonals = np.diagonal(estimates[:, :, columns], axis1=1, axis2=2)
        np.testing.assert_allclose(diagonals, np.tile(exact, (50, 1)), rtol=2e-5)


def test_orthogonal_draws_estimate_better_than_independent_ones() -> None:
    x, y = _vectors()
    exact = np.exp(np.asarray(x @ y.T))
    errors = [
        np.mean((_estimates(f"positive_antithetic(m=4, coupling={c})", x, y, draws=4000) - exact) ** 2)
        for c in ("orthogonal", "iid")
    ]
    assert errors[0] < 0.95 * errors[1]


@pytest.mark.parametrize(
    ("spec", "features", "arrays"),
    [
        ("trigonometric(m=8)", 16, [(8, 5)]),
        ("positive(m=8)", 8, [(8, 5)]),
        ("positive_antithetic(m=8)", 16, [(8, 5)]),
        ("angular_hybrid(m=8, n=8)", 288, [(8, 5), (8, 5)]),
        ("angular_hybrid(m=8, n=4)", 160, [(4, 5), (8, 5)]),
        ("angular_hybrid(m=8, n=8, base=positive)", 216, [(8, 5), (8, 5)]),
    ],
)
def test_maps_have_the_sizes_of_the_papers(spec: str, features: int, arrays: list[tuple[int, int]]) -> None:
    fm = feature_map(spec)
    drawn = fm.init(jax.random.key(0), 5)
    leaves = jax.tree.leaves(drawn)
    # A hybrid draws omega once for both of its bases, and tau apart from it.
    assert [leaf.shape for leaf in leaves] == arrays
    assert len(leaves) == 1 or not np.array_equal(leaves[0], leaves[1])
    for apply in (fm.apply_q, fm.apply_k):
        mapped = apply(drawn, jnp.ones((3, 5)))
        assert mapped.values.shape == (3, features)
        assert mapped.log_scale.shape == (3,)


@pytest.mark.parametrize("norm", [0.0, 1.0, 100.0])
def test_values_are_bounded_and_scales_finite(spec: str, norm: float, tokens) -> None:
    fm = feature_map(spec)
    mapped = fm.apply_k(fm.init(jax.random.key(0), WIDTH), tokens(1, 7, WIDTH, norm))
    assert np.all(np.abs(mapped.values) <= 1)
    assert np.all(np.isfinite(mapped.log_scale))


def test_same_key_same_draw_other_key_other_draw(coupled_spec: str) -> None:
    first, again, other = (feature_map(coupled_spec).init(jax.random.key(s), WIDTH) for s in (0, 0, 1))
    for a, b, c in zip(*map(jax.tree.leaves, (first, again, other)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.all(a != c)


def test_kernel_estimate_is_that_of_the_features_written_out(spec: str, tokens, explicit_kernel) -> None:
    fm = feature_map(spec)
    features = fm.init(jax.random.key(0), WIDTH)
    x, y = tokens(1, 3, WIDTH, 1.5), tokens(2, 5, WIDTH, 0.7)
    np.testing.assert_allclose(
        kernel_estimate(fm, features, x, y), explicit_kernel(fm, features, x, y), rtol=2e-5, atol=1e-6
    )


def test_tokens_of_another_width_are_refused(spec: str) -> None:
    fm = feature_map(spec)
    with pytest.raises(ValueError, match=r"\(3, 5\); these features were drawn for \[tokens, 4\]"):
        fm.apply_q(fm.init(jax.random.key(0), 4), jnp.ones((3, 5)))
