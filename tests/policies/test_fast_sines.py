"""Sines by polynomials: as accurate as those of the C library, and found in every part of a program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.policies.fast_sines import MANY, SINES, compiled, with_fast_sines

EXACT = {"sin": np.sin, "cos": np.cos}


@pytest.mark.parametrize("name", SINES)
def test_they_are_exact_to_float32(name):
    angles = np.random.default_rng(0).uniform(-1e4, 1e4, 100_000).astype(np.float32)
    angles = np.concatenate([angles, angles / 1e4, np.pi / 4 * np.arange(-8, 9, dtype=np.float32)])
    values = jax.jit(SINES[name])(angles)
    np.testing.assert_allclose(values, EXACT[name](angles.astype(np.float64)), rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", SINES)
def test_they_are_not_finite_where_the_angle_is_not(name):
    assert np.isnan(SINES[name](jnp.array([np.nan, np.inf, -np.inf]))).all()


def looped(x):
    return jax.lax.scan(lambda sum_, row: (sum_ + jnp.sin(row) @ row, jnp.cos(row)), 0.0, x)


def chosen(x):
    return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sin(y).sum(), lambda y: jnp.cos(y).sum(), x)


@pytest.mark.rest_slow
@pytest.mark.parametrize(
    "function",
    [
        *(jnp.sin, jax.jit(jnp.cos), looped, chosen, jax.grad(chosen), lambda x: jax.nn.relu(jnp.sin(x))),
        jax.grad(lambda x: jax.checkpoint(looped)(x)[0]),
    ],
)
def test_they_are_in_every_part_of_a_program(function):
    x = jax.random.normal(jax.random.key(0), (5, 3))
    fast = with_fast_sines(function)
    assert not {"sin", "cos"} & set(str(jax.make_jaxpr(fast)(x)).split())
    for value, exact in zip(jax.tree.leaves(fast(x)), jax.tree.leaves(function(x)), strict=True):
        np.testing.assert_allclose(value, exact, atol=1e-6)


def test_other_precisions_keep_their_own():
    x = jnp.linspace(0, 3, 7, dtype=jnp.bfloat16)
    np.testing.assert_array_equal(with_fast_sines(jnp.sin)(x), jnp.sin(x))


@pytest.mark.parametrize(("count", "fast"), [(MANY // 10 - 1, False), (MANY // 10, True)])
def test_calls_with_many_sines_have_fast_ones(count, fast):
    @jax.checkpoint
    def looped(x):
        return jax.lax.scan(lambda total, _: (jnp.sin(total), None), x, length=10)[0]

    x = jnp.linspace(-30, 30, count)
    assert ("sin" in str(jax.make_jaxpr(compiled(looped))(x)).split()) != fast
    if not fast:
        np.testing.assert_array_equal(compiled(looped)(x), jax.jit(looped)(x))
