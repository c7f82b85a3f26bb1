"""The FLOP counter against counts by hand and against XLA's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention, feature_map
from robopolicy.flops import count

X = jax.ShapeDtypeStruct((10, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 16), jnp.float32)
KEY = jax.random.key(0)


def xla(function, *shapes):
    return jax.jit(function).lower(*shapes).compile().cost_analysis()["flops"]


def test_dense_layers_equal_xlas_count():
    def dense(x, w):
        return x @ w + 1.0

    assert count(dense, X, W).total == 2 * 10 * 8 * 16 + 10 * 16 == xla(dense, X, W)


def test_convolutions_equal_xlas_count():
    image, kernel = (
        jax.ShapeDtypeStruct((1, 3, 12, 12), jnp.float32),
        jax.ShapeDtypeStruct((5, 3, 3, 3), jnp.float32),
    )

    def convolve(x, k):
        return jax.lax.conv(x, k, (1, 1), "VALID")

    assert count(convolve, image, kernel).total == 2 * 5 * 10 * 10 * 3 * 9 == xla(convolve, image, kernel)


def test_every_class_has_its_weight():
    counted = count(lambda x: jnp.where(x > 0, jnp.exp(x) + x, 0.0).T.reshape(-1), X)
    assert counted.by_class["transcendental"] == 80
    assert counted.by_class["comparison"] == 80
    assert counted.by_class["elementwise"] == 160
    assert counted.by_class["memory"] > 0
    assert counted.total == 320


def test_reductions_and_sorts_cost_what_they_read():
    vector = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert count(jnp.sum, vector).total == 1000
    assert count(jnp.max, vector).total == 1000
    assert count(lambda x: jax.lax.top_k(x, 5)[0], vector).by_class["comparison"] == 1000 * 10


def test_a_scan_counts_as_often_as_it_runs():
    def scanned(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=7)[0]

    assert count(scanned, X).total == 7 * 80


def test_a_conditional_counts_as_its_dearest_branch():
    def either(x):
        return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sin(jnp.cos(y)), lambda y: y + 1, x)

    assert count(either, X).by_class["transcendental"] == 160


def test_compiled_functions_count_once():
    inner = jax.jit(lambda x: jnp.sin(x))
    assert count(lambda x: inner(inner(x)), X).total == 160
    assert count(jax.nn.relu, X).total == 80


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.linalg.cholesky(x @ x.T), "cholesky"),
        (lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 0, lambda c: c + 1, x), "while"),
    ],
)
def test_what_cannot_be_counted_is_an_error_that_names_it(function, name):
    with pytest.raises(NotImplementedError, match=name):
        count(function, X)


def test_scopes_become_components_and_add_up():
    def parts(x, w):
        with jax.named_scope("projections"):
            y = x @ w
        with jax.named_scope("head"), jax.named_scope("something else"):
            return jnp.sin(y) + jnp.sum(y)

    counted = count(parts, X, W)
    assert counted.by_component == {"projections": 2 * 10 * 8 * 16, "head": 160 + 160 + 160}
    assert sum(counted.by_component.values()) == counted.total
    assert count(jnp.sin, X).by_component == {"other": 80}


@pytest.mark.parametrize(("m", "d"), [(8, 8), (256, 8), (32, 64)])
def test_the_two_sided_map_costs_what_it_costs_by_hand(m, d):
    # Per token: 2md for the projections, 2d for the squared norm, and on top of them what makes features of
    # them. The hand count has 6m there, two features to each of m vectors at three operations; the code
    # takes one maximum from each row as its scale, which is what keeps it finite.
    tokens = 100
    mapped = feature_map(f"positive_antithetic(m={m})")
    features = mapped.init(KEY, d)
    counted = count(mapped.apply_q, features, jax.ShapeDtypeStruct((tokens, d), jnp.float32)).total / tokens
    by_hand = 2 * m * d + 2 * d + 6 * m
    assert by_hand - 2 * m <= counted <= by_hand + 2 * m + 8


@pytest.mark.parametrize("dim", [4, 8])
def test_the_papers_claim_holds_for_ranking(dim):
    tokens = jax.ShapeDtypeStruct((768, dim), jnp.float32)

    def ranked(spec):
        mechanism = attention(spec)
        return count(mechanism.rank, mechanism.init(KEY, dim), tokens, tokens).total

    assert ranked("positive_antithetic(m=256)") > 3 * ranked("angular_hybrid(m=8, n=8)")


def test_exact_attention_is_quadratic_and_the_linear_ones_are_linear():
    def of(spec, tokens):
        mechanism = attention(spec)
        shape = jax.ShapeDtypeStruct((tokens, 8), jnp.float32)
        return count(mechanism.rank, mechanism.init(KEY, 8), shape, shape).total

    assert of("softmax", 2048) / of("softmax", 1024) == pytest.approx(4.0, rel=0.02)
    for spec in ("angular_hybrid(m=8, n=8)", "trigonometric(m=32)"):
        assert of(spec, 2048) / of(spec, 1024) == pytest.approx(2.0, rel=0.02)


def test_counts_do_not_depend_on_values():
    counted = count(jnp.sin, np.zeros((10, 8), np.float32))
    assert counted.counts == count(jnp.sin, X).counts
