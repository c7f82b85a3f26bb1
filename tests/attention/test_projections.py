"""Couplings: marginally Gaussian vectors, orthogonal where they say so."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from robopolicy.attention.catalogue import COUPLINGS
from robopolicy.attention.projections import orthogonal

# p-values below 1e-5 are alarms; some 70 are looked at, so 7e-4 of all seeds raise one. Seeds are fixed.
ALARM = 1e-5

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def _draws(coupling: str, m: int, dim: int, count: int) -> np.ndarray:
    keys = jax.random.split(jax.random.key(7), count)
    return np.asarray(jit(jax.vmap(lambda key: COUPLINGS[coupling](key, m, dim)))(keys))


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize(("m", "dim"), [(2, 5), (5, 5), (7, 3), (4, 1)])
def test_every_vector_is_marginally_standard_normal(coupling: str, m: int, dim: int) -> None:
    draws = _draws(coupling, m, dim, 4000)
    assert draws.shape == (4000, m, dim)
    for row in {0, min(m, dim) - 1, m - 1}:
        for column in {0, dim - 1}:
            assert stats.kstest(draws[:, row, column], "norm").pvalue > ALARM
        assert stats.kstest(np.sum(draws[:, row] ** 2, axis=1), "chi2", (dim,)).pvalue > ALARM
        # A direction that is not uniform can have Gaussian coordinates; a sum of them then is not.
        assert stats.kstest(np.sum(draws[:, row], axis=1) / np.sqrt(dim), "norm").pvalue > ALARM


@pytest.mark.parametrize(("m", "dim"), [(2, 5), (5, 5), (7, 3), (10, 3)])
def test_orthogonal_vectors_are_orthogonal_in_blocks(m: int, dim: int) -> None:
    vectors = np.asarray(orthogonal(jax.random.key(0), m, dim))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    dots = np.abs(units @ units.T)
    for start in range(0, m, dim):
        block = slice(start, start + dim)
        np.testing.assert_allclose(dots[block, block], np.eye(len(vectors[block])), atol=1e-5)
        # Blocks do not know of one another.
        assert np.all(dots[block, start + dim :] > 1e-4)


def test_norms_say_nothing_about_directions() -> None:
    draws = _draws("orthogonal", 3, 3, 4000)
    norms = np.linalg.norm(draws, axis=2)
    along = np.abs(draws[:, 0, 0]) / norms[:, 0]
    assert stats.spearmanr(norms[:, 0], along).pvalue > ALARM
    assert stats.spearmanr(norms[:, 0], norms[:, 1]).pvalue > ALARM


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_a_key_fixes_a_draw(coupling: str) -> None:
    draw = COUPLINGS[coupling]
    first, again, other = (draw(jax.random.key(s), 5, 3) for s in (0, 0, 1))
    assert jnp.array_equal(first, again)
    assert not jnp.any(first == other)
