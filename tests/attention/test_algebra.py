"""Sums, products and multiples of kernels, as features and as maps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import FeatureMap, ScaledFeatures, feature_map, kernel_estimate
from robopolicy.attention.algebra import (
    add,
    concatenate,
    constant_k,
    constant_q,
    multiply,
    outer,
    scale,
    signed,
)
from robopolicy.attention.linear import linear

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

slow, full = (partial(pytest.param, marks=mark) for mark in (pytest.mark.slow, pytest.mark.full))

F, G = (
    feature_map(s)
    for s in ("positive_antithetic(m=3, coupling=iid)", "angular_hybrid(m=2, n=3, coupling=iid)")
)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        full(add(F, G), lambda f, g: f + g),
        slow(multiply(F, G), lambda f, g: f * g),
        full(multiply(G, G), None),
        slow(add(scale(-2.5, F), G), lambda f, g: g - 2.5 * f),
        slow(multiply(F, add(G, F)), None),
        full(scale(0.0, add(F, G)), lambda f, g: 0 * f),
    ],
)
def test_maps_compute_sums_products_and_multiples_of_kernels(
    made: FeatureMap, expected, tokens, explicit_kernel
) -> None:
    x, y = tokens(1, 4, 5), tokens(2, 6, 5, 1.3)
    features = made.init(jax.random.key(0), 5)
    estimate = jit(partial(kernel_estimate, made))(features, x, y)
    np.testing.assert_allclose(estimate, explicit_kernel(made, features, x, y), rtol=1e-4, atol=1e-5)
    if expected is not None:
        parts = [
            jit(partial(kernel_estimate, part))(drawn, x, y)
            for part, drawn in zip((F, G), features, strict=True)
        ]
        np.testing.assert_allclose(estimate, expected(*parts), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_product_of_a_map_with_itself_has_two_draws_and_no_bias(tokens) -> None:
    squared = multiply(F, F)
    first, second = jax.tree.leaves(squared.init(jax.random.key(0), 5))
    assert not jnp.any(first == second)
    x, y = tokens(1, 1, 5, 0.5), tokens(2, 1, 5, 0.5)
    keys = jax.random.split(jax.random.key(1), 20_000)
    estimates = jit(jax.vmap(lambda key: kernel_estimate(squared, squared.init(key, 5), x, y)[0, 0]))(keys)
    # Beyond five standard errors lie 6e-7 of all seeds.
    assert abs(estimates.mean() - jnp.exp(2 * x @ y.T)[0, 0]) < 5 * estimates.std() / np.sqrt(20_000)


def test_products_stay_factored_until_values_are_read() -> None:
    x = jnp.arange(6.0).reshape(2, 3)
    product = outer(ScaledFeatures.of(x), ScaledFeatures.of(x[:, :2], jnp.array([1.0, 2.0])))
    assert [[f.shape for f in block.factors] for block in product.blocks] == [[(2, 3), (2, 2)]]
    np.testing.assert_array_equal(product.values[1], np.outer([3, 4, 5], [3, 4]).ravel())
    np.testing.assert_array_equal(product.log_scale, [1.0, 2.0])


@pytest.mark.slow
def test_blocks_have_own_scales_and_written_out_a_common_one() -> None:
    one = ScaledFeatures.of(jnp.ones((1, 2)), jnp.array([700.0]))
    two = ScaledFeatures.of(jnp.ones((1, 1)), jnp.array([699.0]))
    both = concatenate(one, two)
    assert len(both.blocks) == 2
    np.testing.assert_allclose(both.values, [[1, 1, np.exp(-1)]], rtol=1e-6)
    np.testing.assert_array_equal(both.log_scale, [700.0])
    assert len(both.joined().blocks) == 1
    # A block without a scale has scale zero.
    unscaled = concatenate(
        ScaledFeatures.of(jnp.ones((1, 1)), jnp.array([-700.0])), ScaledFeatures.of(jnp.ones((1, 1)))
    )
    np.testing.assert_array_equal(unscaled.values, [[0, 1]])
    np.testing.assert_array_equal(unscaled.log_scale, [0.0])


@pytest.mark.slow
def test_a_multiple_of_a_kernel_changes_queries_only() -> None:
    features = F.init(jax.random.key(0), 5)
    x = jnp.ones((2, 5))
    twice = scale(-2.0, F)
    np.testing.assert_array_equal(twice.apply_k(features, x).values, F.apply_k(features, x).values)
    np.testing.assert_array_equal(twice.apply_q(features, x).values, -2 * F.apply_q(features, x).values)
    np.testing.assert_array_equal(
        signed(-2.0, F.apply_q(features, x)).values, twice.apply_q(features, x).values
    )


@pytest.mark.parametrize("c", [2.0, 0.25, -3.0, 0.0])
def test_constants_are_kernels_of_either_sign(c: float) -> None:
    dots = [q.values @ k.values.T for q, k in [(constant_q(c, 2), constant_k(c, 3))] if q.blocks]
    np.testing.assert_allclose(dots[0] if dots else np.zeros((2, 3)), np.full((2, 3), c), rtol=1e-6)


@pytest.mark.parametrize(
    "made",
    [full(G), slow(multiply(F, G)), full(multiply(G, G)), slow(add(G, scale(0.5, multiply(F, F))))],
)
def test_factors_and_features_written_out_give_the_same_attention(made: FeatureMap, tokens) -> None:
    written_out = FeatureMap(
        made.init,
        lambda features, x: made.apply_q(features, x).joined(),
        lambda features, y: made.apply_k(features, y).joined(),
    )
    q, k, v = tokens(1, 7, 6, 0.7), tokens(2, 9, 6, 0.7), tokens(3, 9, 2)
    features = made.init(jax.random.key(4), 6)
    mask = jnp.arange(9) != 4
    factored, expected = (_attend(fm)(features, q, k, v, mask) for fm in (made, written_out))
    for a, b in zip(factored, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def _attend(made: FeatureMap):
    att = linear(made)
    return jit(lambda f, q, k, v, mask: (att.apply(f, q, k, v, mask), att.rank(f, q, k, mask)))
