"""FLOP counts against counts by hand and XLA's counts."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention
from robopolicy.costs.flops import COMPONENTS, count, count_step
from robopolicy.envs.quadruped.presets import PRESETS, default_policy
from robopolicy.experiments.default_policies import policy_config
from robopolicy.policies.catalogue import blank_policy
from robopolicy.policies.energy import HEADS
from robopolicy.policies.iap_config import ENCODERS, VARIANTS
from robopolicy.policies.quadruped import quadruped

X = jax.ShapeDtypeStruct((10, 8), jnp.float32)
W = jax.ShapeDtypeStruct((8, 16), jnp.float32)
KEY = jax.random.key(0)


def xla(function, *shapes):
    return jax.jit(function).lower(*shapes).compile().cost_analysis()["flops"]


def test_dense_layers_equal_xlas_count():
    def dense(x, w):
        return x @ w + 1.0

    assert count(dense, X, W).total == 2 * 10 * 8 * 16 + 10 * 16 == xla(dense, X, W)


@pytest.mark.parametrize(
    ("contracted", "batched", "x", "w"),
    [
        (((1,), (0,)), ((), ()), (10, 8), (8, 16)),
        (((2,), (2,)), ((0,), (0,)), (3, 10, 8), (3, 16, 8)),
        (((0, 2), (1, 0)), ((), ()), (4, 10, 8), (8, 4, 16)),
    ],
)
def test_products_equal_xlas_count(contracted, batched, x, w):
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (x, w)]

    def product(x, w):
        return jax.lax.dot_general(x, w, (contracted, batched))

    assert count(product, *shapes).total == xla(product, *shapes)


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ((8, 6, 3, 3), {}),
        ((8, 6, 3, 3), {"window_strides": (2, 3)}),
        ((8, 6, 3, 3), {"padding": "SAME"}),
        ((8, 6, 3, 5), {"padding": ((1, 2), (2, 0)), "window_strides": (2, 2)}),
        ((8, 3, 3, 3), {"feature_group_count": 2}),
        ((12, 1, 3, 3), {"feature_group_count": 6, "padding": "SAME"}),
        ((8, 6, 3, 3), {"batch_group_count": 2}),
        ((8, 6, 3, 3), {"rhs_dilation": (2, 2), "padding": "SAME"}),
        ((8, 6, 3, 3), {"lhs_dilation": (2, 3), "padding": ((2, 2), (1, 2))}),
        ((3, 5, 6, 8), {"dimension_numbers": ("NCHW", "HWIO", "NHWC"), "padding": "SAME"}),
    ],
)
def test_convolutions_equal_xlas_count(kernel, settings):
    image = jax.ShapeDtypeStruct((2, 6, 12, 11), jnp.float32)
    settings = {"window_strides": (1, 1), "padding": "VALID", **settings}

    def convolve(x, k):
        return jax.lax.conv_general_dilated(x, k, **settings)

    shapes = image, jax.ShapeDtypeStruct(kernel, jnp.float32)
    assert count(convolve, *shapes).total == xla(convolve, *shapes)


def test_a_plain_convolution_by_hand():
    image, kernel = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, 3, 12, 12), (5, 3, 3, 3)))
    counted = count(lambda x, k: jax.lax.conv(x, k, (1, 1), "VALID"), image, kernel)
    assert counted.by_class["multiply-add"] == counted.total == 2 * 5 * 10 * 10 * 3 * 9


def test_every_class_has_its_weight():
    counted = count(lambda x: jnp.where(x > 0, jnp.exp(x) + x, 0.0).T.reshape(-1), X)
    assert counted.by_class["transcendental"] == 80
    assert counted.by_class["comparison"] == 80
    assert counted.by_class["elementwise"] == 160
    assert counted.by_class["memory"] > 0
    assert counted.total == 320


def test_reductions_and_sorts_count_their_inputs():
    vector = jax.ShapeDtypeStruct((1000,), jnp.float32)
    assert count(jnp.sum, vector).total == 1000
    assert count(jnp.max, vector).total == 1000
    assert count(jnp.cumsum, vector).total == 1000
    assert count(lambda x: jax.lax.argmax(x, 0, jnp.int32), vector).total == 1000
    assert count(lambda x: jax.lax.top_k(x, 5)[0], vector).by_class["comparison"] == 1000 * 10
    rows = jax.ShapeDtypeStruct((16, 1000), jnp.float32)
    assert count(jnp.sort, rows).total == 16 * 1000 * 10
    assert count(lambda x: jax.lax.top_k(x, 5, axis=0)[0], rows).total == 16 * 1000 * 4
    assert count(lambda x: jnp.sort(x, axis=0), rows).total == 16 * 1000 * 4
    assert count(lambda x: jax.lax.sort((x, x), num_keys=2), vector).total == 2 * 1000 * 10


def test_a_sum_into_a_few_rows_counts_these():
    rows, index = jax.ShapeDtypeStruct((2, 8), jnp.float32), jnp.array([1, 4], jnp.uint32)
    assert count(lambda x, added: x.at[index].add(added), X, rows).total == 2 * 8


@pytest.mark.parametrize(
    ("power", "each"), [(1, 0), (2, 1), (3, 2), (4, 2), (7, 4), (8, 3), (-1, 1), (-2, 2), (-3, 3)]
)
def test_powers_count_repeated_squaring(power, each):
    assert count(lambda x: jax.lax.integer_pow(x, power), X).total == each * 80


def test_a_scan_counts_its_body_as_often_as_it_runs():
    def scanned(x):
        return jax.lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=7)[0]

    assert count(scanned, X).total == 7 * 80

    def nested(x):
        return jax.lax.scan(lambda c, _: (scanned(c) + 1, None), x, None, length=3)[0]

    assert count(nested, X).total == 3 * (7 + 1) * 80
    assert count(lambda x: jax.lax.fori_loop(0, 5, lambda i, c: jnp.sin(c), x), X).total == 5 * 80


def test_a_conditional_counts_as_its_most_expensive_branch():
    def either(x):
        return jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sin(jnp.cos(y)), lambda y: y + 1, x)

    assert count(either, X).by_class["transcendental"] == 160

    def one_of_three(x, i):
        branches = [lambda y: y, lambda y: jnp.sin(y), lambda y: jnp.cos(jnp.cos(y)) + 1]
        return jax.lax.scan(lambda c, _: (jax.lax.switch(i, branches, c), None), x, None, length=4)[0]

    index = jax.ShapeDtypeStruct((), jnp.int32)
    assert count(one_of_three, X, index).by_class["transcendental"] == 4 * 160


def test_compiled_functions_count_once():
    inner = jax.jit(lambda x: jnp.sin(x))
    assert count(lambda x: inner(inner(x)), X).total == 160
    assert count(jax.nn.relu, X).total == 80
    assert count(jax.checkpoint(lambda x: jnp.sin(x)), X).total == 80


def test_unused_operations_count_nothing():
    def both(x):
        return jnp.sin(x), jnp.cos(x) + 1

    assert count(lambda x: both(x)[0], X).total == 80
    assert count(lambda x: jax.jit(both)(x)[1], X).total == 160


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.linalg.cholesky(x @ x.T), "cholesky"),
        (lambda x: jnp.fft.fft(x[0]).real, "'fft'"),
        (lambda x: jax.lax.map(lambda row: jnp.linalg.cholesky(jnp.outer(row, row)), x), "cholesky"),
        (lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: jnp.linalg.qr(y)[0], lambda y: y, x[:8]), "'qr'"),
        (lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 0, lambda c: c + 1, x), "while"),
    ],
)
def test_an_uncountable_primitive_is_named_in_an_error(function, name):
    with pytest.raises(NotImplementedError, match=name):
        count(function, X)


def test_scopes_become_components_and_add_up():
    def parts(x, w):
        with jax.named_scope("projections"):
            y = x @ w
        with jax.named_scope("head"), jax.named_scope("no component"):
            return jnp.sin(y) + jnp.sum(y)

    counted = count(parts, X, W)
    assert counted.by_component == {"projections": 2 * 10 * 8 * 16, "head": 160 + 160 + 160}
    assert sum(counted.by_component.values()) == counted.total
    assert count(jnp.sin, X).by_component == {"other": 80}


STONES = quadruped("angular_hybrid(m=8, n=8)", ("velocity_x", "pitch"), leg_inputs=("pitch",))
SWEEP = policy_config(
    "angular_hybrid(m=8, n=8)", "bimanual-sweep", images={"image": (48, 48)}, patch=12, samples=16
)
OF_FRONT = {name: value for name, value in default_policy(PRESETS["front"]).items() if name != "kind"}
FRONT = quadruped("trigonometric(m=32)", **OF_FRONT)
POLICIES = [
    *(replace(FRONT, variant=variant) for variant in VARIANTS if variant != "rank"),
    *(replace(FRONT, attention="all", encoder=encoder) for encoder in ENCODERS),
    replace(STONES, variant="rank"),
    replace(STONES, attention="softmax", normalise=True, hidden=8, head="tanh"),
    replace(STONES, attention="none"),
    *(replace(SWEEP, head=head) for head in HEADS),
    replace(SWEEP, attention="softmax", qk_norm="tempered"),
]


@pytest.mark.parametrize("config", POLICIES, ids=str)
def test_every_operation_of_a_policy_belongs_to_a_component(config):
    counted = count_step(blank_policy(config))
    assert set(counted.by_component) <= set(COMPONENTS)
    assert set(counted.traffic_by_component) <= set(COMPONENTS)
    assert sum(counted.by_component.values()) == counted.total > 0
    assert {"head"} <= set(counted.by_component)
    assert counted.total == sum(n for kind, n in counted.by_class.items() if kind != "memory")


def test_a_summary_holds_all_counts():
    counted = count(lambda x, w: jnp.sin(x @ w), X, W)
    assert counted.summary() == {
        "total": 2720,
        "by_component": {"other": 2720},
        "by_class": {
            "multiply-add": 2560,
            "elementwise": 0,
            "transcendental": 160,
            "comparison": 0,
            "memory": 0,
        },
        "traffic_bytes": 4 * (80 + 128 + 160 + 2 * 160),
        "traffic_by_component": {"other": 4 * (80 + 128 + 160 + 2 * 160)},
        "peak_bytes": 4 * (80 + 128 + 2 * 160),
    }


@pytest.mark.parametrize("dim", [pytest.param(4, marks=pytest.mark.slow), 8])
def test_the_papers_claim_holds_for_ranking(dim):
    tokens = jax.ShapeDtypeStruct((768, dim), jnp.float32)

    def ranked(spec):
        mechanism = attention(spec)
        return count(mechanism.rank, mechanism.init(KEY, dim), tokens, tokens).total

    assert ranked("positive_antithetic(m=256)") > 3 * ranked("angular_hybrid(m=8, n=8)")


def test_exact_attention_is_quadratic_and_feature_maps_are_linear():
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
