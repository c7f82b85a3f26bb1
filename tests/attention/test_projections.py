"""Couplings: marginally Gaussian vectors, with the angles of their definition."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from robopolicy.attention.catalogue import COUPLINGS
from robopolicy.attention.conformity import empirical_conformity
from robopolicy.attention.projections import vectors
from robopolicy.attention.structured import walsh_hadamard

slow, full = (partial(pytest.param, marks=mark) for mark in (pytest.mark.slow, pytest.mark.full))

# p-values below 1e-5 are alarms. There are some 70, so 7e-4 of all seeds raise one. Seeds are fixed.
ALARM = 1e-5

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@lru_cache
def _draws(coupling: str, m: int, dim: int, count: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(7), count)
    return np.asarray(jit(jax.vmap(lambda key: vectors(COUPLINGS[coupling](key, m, dim))))(keys))


@lru_cache
def _pair(coupling: str) -> np.ndarray:
    """[3, 7, 3]: two full blocks and a vector alone, from one key twice and from another."""
    draw = jit(jax.vmap(lambda seed: vectors(COUPLINGS[coupling](jax.random.key(seed), 7, 3))))
    return np.asarray(draw(jnp.array([0, 0, 1])))


# Signs of Hadamard transforms give Gaussian vectors in the limit of large widths only.
STRUCTURED = ("hadamard", "fast_simplex")
# Two blocks and a third that is not full cover the other sizes.
SIZES = [slow(7, 3), full(2, 5), full(5, 5), full(4, 1)]


@pytest.mark.parametrize(
    ("coupling", "m", "dim"),
    [
        pytest.param(c, *size.values, marks=size.marks, id=f"{c}-{size.values}")
        for c in COUPLINGS
        for size in ([full(3, 64), slow(70, 64)] if c in STRUCTURED else SIZES)
    ],
)
def test_every_vector_is_marginally_standard_normal(coupling: str, m: int, dim: int) -> None:
    count = 2000 if coupling in STRUCTURED else 4000
    draws = _draws(coupling, m, dim, count)
    assert draws.shape == (count, m, dim)
    for row in {0, min(m, dim) - 1, m - 1}:
        for column in {0, dim - 1}:
            assert stats.kstest(draws[:, row, column], "norm").pvalue > ALARM
        assert stats.kstest(np.sum(draws[:, row] ** 2, axis=1), "chi2", (dim,)).pvalue > ALARM
        # A direction that is not uniform can have Gaussian coordinates; a sum of them then is not.
        assert stats.kstest(np.sum(draws[:, row], axis=1) / np.sqrt(dim), "norm").pvalue > ALARM


@pytest.mark.parametrize(("m", "dim"), [full(2, 5), full(5, 5), (7, 3), full(10, 3)])
def test_orthogonal_vectors_are_orthogonal_in_blocks(m: int, dim: int) -> None:
    drawn = _pair("orthogonal")[0] if (m, dim) == (7, 3) else _draws("orthogonal", m, dim, 1)[0]
    units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    dots = np.abs(units @ units.T)
    for start in range(0, m, dim):
        block = slice(start, start + dim)
        np.testing.assert_allclose(dots[block, block], np.eye(len(drawn[block])), atol=1e-5)
        # Different blocks are independent.
        assert np.all(dots[block, start + dim :] > 1e-4)


@pytest.mark.slow
def test_norms_are_independent_of_directions() -> None:
    draws = _draws("orthogonal", 3, 3, 4000)
    norms = np.linalg.norm(draws, axis=2)
    along = np.abs(draws[:, 0, 0]) / norms[:, 0]
    assert stats.spearmanr(norms[:, 0], along).pvalue > ALARM
    assert stats.spearmanr(norms[:, 0], norms[:, 1]).pvalue > ALARM


@pytest.mark.parametrize("coupling", [c if c in ("orthogonal", "halton") else slow(c) for c in COUPLINGS])
def test_a_key_fixes_a_draw(coupling: str) -> None:
    first, again, other = _pair(coupling)
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


@pytest.mark.parametrize("dim", [full(2), 3, full(6)])
def test_simplex_vectors_have_the_angle_of_a_simplex(dim: int) -> None:
    drawn = _pair("simplex")[0][:6] if dim == 3 else _draws("simplex", 2 * dim, dim, 1)[0]
    units = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    for block in (units[:dim], units[dim:]):
        expected = np.where(np.eye(dim), 1, -1 / (dim - 1))
        np.testing.assert_allclose(block @ block.T, expected, atol=1e-5)


@pytest.mark.slow
def test_simplex_plus_points_every_vector_away_from_the_others_and_conforms_less() -> None:
    # Seven vectors in three dimensions: two full blocks and a vector alone.
    drawn, simplex = (_pair(coupling)[2] for coupling in ("simplex_plus", "simplex"))
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), np.linalg.norm(simplex, axis=1), rtol=1e-5)
    for block in (slice(0, 3), slice(3, 6)):
        for i in range(3):
            others = drawn[block].sum(0) - drawn[block][i]
            size = np.linalg.norm(others)
            if size > 1e-3:
                cosine = drawn[block][i] @ others / (np.linalg.norm(drawn[block][i]) * size)
                assert cosine < -0.999
        assert empirical_conformity(drawn[block], 0.5) <= empirical_conformity(simplex[block], 0.5)
    np.testing.assert_allclose(drawn[6], simplex[6], rtol=1e-5)


@pytest.mark.parametrize("size", [full(1), full(2), 8, slow(32), full(64)])
def test_the_walsh_hadamard_transform_equals_its_matrix(size: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, size)).astype(np.float32)
    np.testing.assert_allclose(jit(walsh_hadamard)(x), x @ linalg.hadamard(size), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "dim"), [full(4, 8), full(8, 8), (20, 5)])
def test_hadamard_projections_are_products_of_signs_and_hadamard_matrices(m: int, dim: int) -> None:
    @jit
    def drawn(key):
        omega = COUPLINGS["hadamard"](key, m, dim)
        return omega, vectors(omega), omega.squares()

    omega, found, squares = drawn(jax.random.key(0))
    h, signs = linalg.hadamard(8) / np.sqrt(8), np.asarray(omega.rest, np.float64)
    first = np.pad(np.asarray(omega.first, np.float64), ((0, 0), (0, 8 - dim)))
    rows = [h @ np.diag(s[1]) @ h @ np.diag(s[0]) @ h @ np.diag(f) for f, s in zip(first, signs, strict=True)]
    expected = np.concatenate(rows)[:m, :dim] * np.asarray(omega.norms)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(squares, np.sum(expected**2, axis=1), rtol=1e-4)


def test_the_bias_of_hadamard_vectors_has_either_sign_by_direction() -> None:
    # docs/mechanisms/couplings.md: 33 and -32 % at |x + y| = 2; the standard errors are 0.4 %.
    for direction, bias in (([0.5**0.5, 0.5**0.5], 0.33), ([1.0, 0.0], -0.32)):
        x = jnp.array([direction])
        draws = _draws("hadamard", 2, 2, 100_000)[:, 0] @ x[0]
        assert abs(np.mean(np.cosh(2 * draws)) / np.exp(2) - 1 - bias) < 0.05


def test_hadamard_projections_store_signs_and_lengths_only() -> None:
    for coupling in ("hadamard", "fast_simplex"):
        drawn = jax.eval_shape(lambda key, draw=COUPLINGS[coupling]: draw(key, 1000, 1000), jax.random.key(0))
        leaves = jax.tree.leaves(drawn)
        assert {leaf.dtype.name for leaf in leaves} == {"int8", "float32"}
        assert sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) < 12_000


def test_halton_points_fill_every_stratum() -> None:
    # The first coordinate is the van der Corput sequence in base 2: four points, one in each quarter.
    drawn = _pair("halton")[0].astype(np.float64)[:4]
    assert sorted(np.floor(4 * stats.norm.cdf(drawn[:, 0]))) == list(range(4))
