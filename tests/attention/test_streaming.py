"""Attention as a memory: every mechanism against the explicit sum over all that was written."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention, feature_map, streaming
from robopolicy.costs.flops import count

jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

D, V, TOKENS, UPDATES, KEPT = 4, 2, 3, 9, 4
WRITTEN = (np.arange(UPDATES * TOKENS) % 5 != 2).reshape(UPDATES, TOKENS)
DECAY = 0.8


def tokens(seed, *shape):
    """Random tokens of length one."""
    x = jax.random.normal(jax.random.key(seed), shape)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def memory_of(spec, **settings):
    return streaming(spec, updates=KEPT if spec == "softmax" else None, **settings)


def test_a_read_is_attention_over_all_that_was_written(spec_or_softmax):
    spec, q = spec_or_softmax, tokens(0, 5, D)
    lengths = jnp.linspace(0.2, 1.5, UPDATES)[:, None, None]  # so that scales rise and fall
    k, v = lengths * tokens(1, UPDATES, TOKENS, D), tokens(2, UPDATES, TOKENS, V)
    k = k.at[::2].set(k[::2][::-1])
    draw = attention(spec).init(jax.random.key(3), D)
    memory = memory_of(spec, decay=DECAY)
    broken = jnp.where(WRITTEN[..., None], k, jnp.nan)

    def run(draw):
        def step(state, given):
            state = memory.update(draw, state, *given)
            return state, memory.read(draw, state, q)

        state = memory.init(draw, D, V, TOKENS)
        return memory.read(draw, state, q), jax.lax.scan(step, state, (broken, v, jnp.array(WRITTEN)))[1]

    empty, found = jit(run)(draw)
    np.testing.assert_array_equal(empty, 0)
    kernel = jnp.exp(q @ k.reshape(-1, D).T)
    if spec != "softmax":
        kernel = jit(partial(_estimate, feature_map(spec)))(draw, q, k.reshape(-1, D))
    for last in range(UPDATES):
        ages = last - np.arange(UPDATES)
        weights = np.where(ages >= 0, DECAY ** ages.astype(float), 0)[:, None] * WRITTEN
        if spec == "softmax":
            weights[ages >= KEPT] = 0
        terms = np.asarray(kernel) * weights.ravel()
        totals = terms.sum(axis=1, keepdims=True)
        # A row whose sum nearly cancels has few digits left.
        sound = np.abs(totals[:, 0]) > 1e-2 * np.abs(terms).sum(axis=1)
        expected = terms @ np.asarray(v).reshape(-1, V) / totals
        np.testing.assert_allclose(found[last][sound], expected[sound], rtol=1e-3, atol=1e-3)
        assert sound.mean() > 0.5


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        ("softmax", "sum"),
        pytest.param("poisson(m=8)", "sum", marks=pytest.mark.slow),
        ("trigonometric(m=8)", "delta"),
    ],
)
def test_tokens_of_16_bits_count_as_in_float32(spec, rule):
    draw, memory = attention(spec).init(jax.random.key(3), D), memory_of(spec, rule=rule)
    arrays = [(3 * tokens(seed, TOKENS, D)).astype(jnp.bfloat16) for seed in range(3)]
    found, exact = (
        memory.read(draw, memory.update(draw, memory.init(draw, D, D, TOKENS), k, v), q)
        for q, k, v in (arrays, [array.astype(jnp.float32) for array in arrays])
    )
    np.testing.assert_array_equal(found, exact)


def _estimate(fm, draw, q, k):
    """`kernel_estimate` with the constants of the draw, since those that follow the data would change."""
    queries, keys = fm.apply_q(draw, q), fm.apply_k(draw, k)
    return queries.values @ keys.values.T * jnp.exp(queries.log_scale[:, None] + keys.log_scale)


def test_a_step_maps_every_token_once(spec):
    width, count_k, count_q = 8, 12, 7
    fm, memory = feature_map(spec), streaming(spec)
    shapes = [(count_k, width), (count_q, width), (count_k, V)]
    k, q, v = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    draw = jax.eval_shape(lambda: attention(spec).init(jax.random.key(3), width))
    state = jax.eval_shape(lambda draw: memory.init(draw, width, V, count_k), draw)

    def products(function, *arguments):
        return count(function, *arguments).by_class["multiply-add"]

    def step(draw, state, k, v, q):
        state = memory.update(draw, state, k, v)
        return memory.read(draw, state, q, least=0.25)

    def blocks(side):
        return lambda draw, x: [(b.factors, b.log_scale) for b in side(draw, x).blocks]

    maps = products(blocks(fm.apply_k), draw, k) + products(blocks(fm.apply_q), draw, q)
    sums = 2 * (count_k + count_q) * sum(matrix.size for matrix in state.sums)
    assert products(step, draw, state, k, v, q) == maps + sums


@pytest.mark.rest_slow
def test_token_by_token_it_is_causal_attention(spec_or_softmax):
    spec, count = spec_or_softmax, 12
    q, k, v = tokens(0, count, D), tokens(1, count, D), tokens(2, count, V)
    draw = attention(spec).init(jax.random.key(3), D)
    memory = streaming(spec, updates=count if spec == "softmax" else None)

    def run(draw):
        def step(state, token):
            q, k, v = (part[None] for part in token)
            state = memory.update(draw, state, k, v)
            return state, memory.read(draw, state, q)[0]

        return jax.lax.scan(step, memory.init(draw, D, V, 1), (q, k, v))[1]

    expected = jit(attention(spec).causal)(draw, q, k, v)
    near = np.abs(expected) < 20  # where denominators do not nearly cancel
    assert near.mean() > 0.7
    np.testing.assert_allclose(jit(run)(draw)[near], expected[near], rtol=2e-3, atol=2e-3)


@pytest.mark.slow
def test_by_the_delta_rule_a_token_replaces_what_its_key_reads(spec):
    draw = attention(spec).init(jax.random.key(3), D)
    memory = streaming(spec, rule="delta")
    k, v = tokens(1, TOKENS, D), tokens(2, TOKENS, V)
    k, v = jnp.concatenate([k, k[:1]]), jnp.concatenate([v, 5 * v[:1]])

    def run(draw):
        empty = memory.init(draw, D, V, TOKENS + 1)
        at_once = memory.update(draw, empty, k, v)
        one_by_one = empty
        for i in range(TOKENS + 1):
            one_by_one = memory.update(draw, one_by_one, k[i : i + 1], v[i : i + 1])
        unwritten = memory.update(draw, at_once, k * jnp.nan, v, jnp.zeros(TOKENS + 1, bool))
        states = (empty, at_once, one_by_one, unwritten)
        return [memory.read(draw, state, k) for state in states]

    empty, at_once, one_by_one, unwritten = jit(run)(draw)
    np.testing.assert_array_equal(empty, 0)
    np.testing.assert_allclose(at_once[0], 5 * v[0], rtol=1e-3, atol=1e-4)
    size = float(jnp.abs(at_once).max())
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-3, atol=1e-4 * size)
    np.testing.assert_array_equal(unwritten, at_once)


def test_by_the_delta_rule_an_unwritten_token_of_another_scale_changes_nothing():
    spec, k = "geometric(m=8, p=0.5)", tokens(1, 2, 8)
    memory, draw = streaming(spec, rule="delta"), attention(spec).init(jax.random.key(0), 8)

    @jit
    def reads(draw):
        written = memory.update(draw, memory.init(draw, 8, 8, 1), k[:1], k[:1])
        both = memory.update(draw, memory.init(draw, 8, 8, 2), k, k, jnp.array([True, False]))
        return memory.read(draw, both, k), memory.read(draw, written, k)

    np.testing.assert_allclose(*reads(draw), rtol=1e-6)  # XLA may compile the two sums differently


@pytest.mark.rest_slow
@pytest.mark.parametrize("rule", ["delta", "sum"])
def test_an_hour_leaves_only_what_has_not_faded(rule):
    spec, hour, recent = "positive_antithetic(m=8)", 72_000, 2_000
    memory, q = streaming(spec, decay=0.97, rule=rule), tokens(0, 5, D)
    draw = attention(spec).init(jax.random.key(3), D)

    def run(first):
        def step(state, tick):
            key = jax.random.key(tick)
            k = jax.random.normal(key, (TOKENS, D))
            return memory.update(draw, state, k, k[:, :V]), None

        begun = memory.init(draw, D, V, TOKENS)
        return memory.read(draw, jax.lax.scan(step, begun, jnp.arange(first, hour))[0], q)

    long, short = jax.jit(lambda: run(0))(), jax.jit(lambda: run(hour - recent))()
    assert np.isfinite(long).all()
    np.testing.assert_allclose(long, short, rtol=1e-5, atol=1e-6)


@pytest.mark.rest_slow
@pytest.mark.parametrize("spec", ["trigonometric(m=2)", "angular_hybrid(m=2, n=2)", "positive(m=2)"])
def test_a_mean_weight_below_the_least_counts_as_the_least(spec):
    q, k = 2 * tokens(0, 200, D), 2 * tokens(1, TOKENS, D)
    v = tokens(2, TOKENS, V)
    draw = attention(spec).init(jax.random.key(3), D)
    memory = streaming(spec, decay=DECAY)
    written, least = jnp.array([True, False, True]), 0.5

    def run(draw):
        empty = memory.init(draw, D, V, TOKENS)
        state = memory.update(draw, empty, 7 * k, v, jnp.zeros(TOKENS, bool))
        state = memory.update(draw, memory.update(draw, state, k, v), k, v, written)
        return memory.read(draw, empty, q, least), memory.read(draw, state, q, least)

    empty, found = jit(run)(draw)
    np.testing.assert_array_equal(empty, 0)
    ages = DECAY + np.asarray(written)
    weights = np.asarray(_estimate(feature_map(spec), draw, q, k), np.float64) * ages / ages.sum()
    means = weights.sum(axis=1)
    assert 0.1 < np.mean(means < least) < 0.9
    expected = weights @ np.asarray(v) / np.maximum(means, least)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("spec", ["trigonometric(m=2)", "positive(m=2)"])
def test_the_derivative_of_a_read_knows_the_least(spec):
    q, k, v = tokens(0, 20, D), tokens(1, TOKENS, D), tokens(2, TOKENS, V)
    draw = attention(spec).init(jax.random.key(3), D)
    memory = streaming(spec)
    state = memory.update(draw, memory.init(draw, D, V, TOKENS), k, v)

    def along(step):
        return memory.read(draw, state, q + step * tokens(4, 20, D), least=100.0)

    _, slope = jax.jvp(along, (0.0,), (1.0,))
    difference = (along(0.01) - along(-0.01)) / 0.02
    np.testing.assert_allclose(slope, difference, atol=0.01 * np.abs(difference).max())


def test_a_read_of_a_small_weight_is_that_of_attention():
    # The kernel is e^-64, and the product of features some 1e-28.
    k = jnp.full((1, 4), 4.0)
    spec, v = "positive(m=16)", jnp.ones((1, 1))
    draw = attention(spec).init(jax.random.key(0), 4)
    memory = streaming(spec)
    state = memory.update(draw, memory.init(draw, 4, 1, 1), k, v)
    np.testing.assert_allclose(memory.read(draw, state, -k), v, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decay": 0}, "decay is 0: it must be a number above 0 and at most 1"),
        ({"decay": "1"}, "decay is '1'"),
        ({"rule": "hebb"}, "rule is 'hebb': it must be one of sum, delta"),
        ({"updates": 3}, "updates is 3: only softmax keeps tokens"),
        ({"spec": "softmax"}, "updates is None: softmax needs it"),
        ({"spec": "softmax", "updates": 0}, "updates is 0: it must be a positive integer"),
        ({"spec": "softmax", "updates": 3, "rule": "delta"}, "softmax has the rule 'sum' alone"),
        ({"spec": "sofmax"}, "unknown attention 'sofmax'"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        streaming(**{"spec": "trigonometric(m=4)", **settings})


def test_tokens_of_another_shape_are_refused():
    memory = streaming("softmax", updates=2)
    state = memory.init((), D, V, TOKENS)
    with pytest.raises(ValueError, match="k has 2 tokens: the memory keeps updates of 3"):
        memory.update((), state, jnp.zeros((2, D)), jnp.zeros((2, V)))
    with pytest.raises(ValueError, match=f"k has width 1: the memory was made for keys of {D}"):
        memory.update((), state, jnp.zeros((TOKENS, 1)), jnp.zeros((TOKENS, V)))
    memory = streaming("trigonometric(m=4)")
    draw = attention("trigonometric(m=4)").init(jax.random.key(0), D)
    with pytest.raises(ValueError, match="v has 2 tokens and k has 3"):
        memory.update(draw, memory.init(draw, D, V, 3), jnp.zeros((3, D)), jnp.zeros((2, V)))


@pytest.mark.parametrize("rule", ["sum", "delta"])
def test_values_of_another_width_are_refused(rule: str) -> None:
    memory = streaming("positive(m=8)", rule=rule)
    features = attention("positive(m=8)").init(jax.random.key(0), 4)
    state = memory.init(features, 4, 3, 2)
    with pytest.raises(ValueError, match="v has width 1: the memory was made for values of 3"):
        memory.update(features, state, jnp.ones((2, 4)), jnp.ones((2, 1)))
