"""Rows of linear attention without keys or with tiny sums."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention

pytestmark = pytest.mark.slow

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def test_second_derivatives_of_a_row_without_keys_are_finite() -> None:
    mechanism, x, mask = attention("positive(m=8)"), jnp.ones((3, 4)) / 2, jnp.array([False, True, True])
    causal = partial(mechanism.causal, mechanism.init(jax.random.key(0), 4))
    second = jax.hessian(lambda c: jnp.sum(causal(c * x, c * x, x, mask) ** 2))
    assert np.isfinite(second(1.0))


def test_rows_of_tiny_sums_keep_their_mass() -> None:
    mechanism, tokens = attention("optimal_positive(m=16)"), jax.random.normal(jax.random.key(1), (2, 128, 8))
    q, k = 11 * tokens / jnp.linalg.norm(tokens, axis=2, keepdims=True)
    features = mechanism.init(jax.random.key(0), 8)

    @jit
    def all_of(q):
        rows, ranks = mechanism.apply(features, q, k, jnp.ones((128, 1))), mechanism.rank(features, q, k)
        slopes = jax.grad(lambda q: jnp.sum(mechanism.apply(features, q, k, k) ** 2))(q)
        return rows, jnp.mean(ranks), mechanism.denominators(features, q, k), slopes

    rows, rank, denominators, slopes = all_of(q)
    assert np.min(denominators) < 1e-22
    np.testing.assert_allclose(rows, 1, rtol=1e-5)
    np.testing.assert_allclose(rank, 1, rtol=1e-5)
    assert np.all(np.isfinite(slopes))
