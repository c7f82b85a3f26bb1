"""Attention of every mechanism against its explicit matrix: apply, rank, masks, gradients, cost."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from robopolicy.attention import attention, chunked, feature_map

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

T, S, D, V = 5, 11, 4, 3


@pytest.fixture
def matrix(explicit_kernel):
    """(spec, features, q, k) -> [T, S], the row-normalised attention matrix in double precision."""

    def build(spec: str, features, q, k) -> np.ndarray:
        if spec == "softmax":
            kernel = np.exp(np.asarray(q, np.float64) @ np.asarray(k, np.float64).T)
        else:
            kernel = explicit_kernel(feature_map(spec), features, q, k)
        return kernel / kernel.sum(axis=1, keepdims=True)

    return build


def _both(spec: str):
    """(features, q, k, v, mask=None) -> (apply, rank)."""
    att = attention(spec)
    return lambda f, q, k, v, mask=None: (att.apply(f, q, k, v, mask), att.rank(f, q, k, mask))


@lru_cache
def compiled(spec: str):
    """`_both`, compiled once for all tests."""
    return jit(_both(spec))


@lru_cache
def drawn(spec: str, seed: int = 0):
    """Features of one head."""
    return attention(spec).init(jax.random.key(seed), D)


@pytest.fixture
def head(tokens):
    """q [T, D], k [S, D], v [S, V] of unit norm."""
    return tokens(1, T, D), tokens(2, S, D), tokens(3, S, V)


def test_apply_and_rank_are_those_of_the_explicit_matrix(any_spec: str, head, matrix) -> None:
    q, k, v = head
    expected = matrix(any_spec, drawn(any_spec), q, k)
    applied, ranks = compiled(any_spec)(drawn(any_spec), q, k, v)
    np.testing.assert_allclose(applied, expected @ v, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ranks, expected.sum(axis=0), rtol=1e-5, atol=1e-5)


def test_rows_sum_to_one(any_spec: str, head) -> None:
    q, k, v = head
    applied, ranks = compiled(any_spec)(drawn(any_spec), q, k, jnp.ones_like(v))
    np.testing.assert_allclose(applied, np.ones((T, V)), rtol=1e-5)
    np.testing.assert_allclose(ranks.sum(), T, rtol=1e-5)


def test_many_features_approach_softmax(head) -> None:
    many = "positive_antithetic(m=4096)"
    exact, estimate = compiled("softmax")((), *head), compiled(many)(drawn(many), *head)
    np.testing.assert_allclose(estimate[0], exact[0], atol=0.03)
    np.testing.assert_allclose(estimate[1], exact[1], atol=0.03)


@pytest.mark.parametrize("filling", [0.0, 1e30, np.nan, np.inf])
def test_masked_keys_leave_no_trace(any_spec: str, head, filling: float) -> None:
    q, k, v = head
    attend, features = compiled(any_spec), drawn(any_spec)
    mask = np.arange(S) % 3 != 1
    padded_k, padded_v = (jnp.where(mask[:, None], a, filling) for a in (k, v))
    applied, ranks = attend(features, q, padded_k, padded_v, mask)
    expected = attend(features, q, k[mask], v[mask])
    np.testing.assert_allclose(applied, expected[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ranks[mask], expected[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ranks[~mask], 0)


def test_a_mask_of_ones_changes_nothing_and_one_of_zeros_gives_zero(any_spec: str, head) -> None:
    attend, features = compiled(any_spec), drawn(any_spec)
    plain, kept = attend(features, *head), attend(features, *head, np.ones(S, bool))
    np.testing.assert_allclose(kept[0], plain[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(kept[1], plain[1], rtol=1e-6, atol=1e-6)
    for result in attend(features, *head, np.zeros(S, bool)):
        np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize("norm", [0.0, 100.0])
def test_finite_at_any_norm(any_spec: str, norm: float, tokens) -> None:
    head = tokens(1, T, D, norm), tokens(2, S, D, norm), tokens(3, S, V)
    mask = np.arange(S) != 2
    assert all(np.all(np.isfinite(result)) for result in compiled(any_spec)(drawn(any_spec), *head))
    assert all(np.all(np.isfinite(g)) for g in _gradients(any_spec)(drawn(any_spec), *head, mask))


@lru_cache
def _gradients(spec: str):
    """Gradients for q, k and v of a loss that reads every entry of apply and rank differently."""
    return jit(jax.grad(_loss(spec), argnums=(1, 2, 3)))


def _loss(spec: str):
    def loss(features, q, k, v, mask=None):
        results = _both(spec)(features, q, k, v, mask)
        return sum(jnp.sum(jnp.sin(1.0 + jnp.arange(r.size)).reshape(r.shape) * r) for r in results)

    return loss


def test_keys_of_very_different_lengths_share_one_scale(spec: str, tokens, matrix) -> None:
    # A scale for each key or each block would cancel nowhere and show as an error here.
    q = tokens(1, T, D)
    k = tokens(2, S, D) * jnp.linspace(0.1, 2.0, S)[:, None]
    expected = matrix(spec, drawn(spec), q, k)
    applied, ranks = compiled(spec)(drawn(spec), q, k, k[:, :V])
    np.testing.assert_allclose(applied, expected @ k[:, :V], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ranks, expected.sum(axis=0), rtol=1e-4, atol=1e-4)


def test_negative_denominators_stay_visible() -> None:
    # One trigonometric feature pair, and keys where its cosine of the difference is negative.
    att = attention("trigonometric(m=1)")
    features = att.init(jax.random.key(0), 1)
    features = jax.tree.map(jnp.ones_like, features)
    q, k = jnp.zeros((1, 1)), jnp.pi * jnp.ones((2, 1))
    v = jnp.ones((2, 1))
    np.testing.assert_allclose(att.apply(features, q, k, v), [[1.0]], rtol=1e-6)
    np.testing.assert_allclose(att.rank(features, q, k), [0.5, 0.5], rtol=1e-6)
    assert att.denominators(features, q, k)[0] < 0
    mixed = jnp.array([[jnp.pi], [jnp.pi / 3]])
    weights = np.array([-np.exp(np.pi**2 / 2), 0.5 * np.exp(np.pi**2 / 18)])
    np.testing.assert_allclose(att.rank(features, q, mixed), weights / weights.sum(), rtol=1e-5)


@pytest.mark.slow
def test_gradients_are_those_of_finite_differences(any_spec: str, head) -> None:
    # Signs have no derivative but at their jumps, which no finite difference here crosses.
    with jax.enable_x64(True):
        to_double = partial(jax.tree.map, lambda a: jnp.asarray(np.asarray(a), jnp.float64))
        inputs, features = to_double(head), to_double(drawn(any_spec))
        mask = np.arange(S) != 2
        gradients = _gradients(any_spec)(features, *inputs, mask)
        loss = jit(_loss(any_spec))
        for position, (array, gradient) in enumerate(zip(inputs, gradients, strict=True)):
            step = np.random.default_rng(position).normal(size=array.shape)
            moved = [
                loss(features, *inputs[:position], array + h * step, *inputs[position + 1 :], mask)
                for h in (1e-5, -1e-5)
            ]
            difference = (moved[0] - moved[1]) / 2e-5
            np.testing.assert_allclose(np.sum(gradient * step), difference, rtol=1e-5, atol=1e-7)


def test_masked_keys_get_no_gradient(any_spec: str, head) -> None:
    q, k, v = head
    mask = np.arange(S) != 2
    gradients = _gradients(any_spec)(drawn(any_spec), q, k.at[2].set(jnp.nan), v, mask)
    assert all(np.all(np.isfinite(g)) for g in gradients)
    for gradient in gradients[1:]:
        np.testing.assert_array_equal(gradient[2], 0)
        assert np.all(np.any(gradient[mask] != 0, axis=1))


@pytest.mark.slow
def test_vmap_over_heads_is_a_loop_over_heads(any_spec: str, tokens) -> None:
    q, k, v = (tokens(s, 2 * n, w).reshape(2, n, w) for s, n, w in ((1, T, D), (2, S, D), (3, S, V)))
    heads = [drawn(any_spec, seed) for seed in (0, 1)]
    together = jit(jax.vmap(_both(any_spec)))(
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *heads), q, k, v
    )
    for h, features in enumerate(heads):
        alone = compiled(any_spec)(features, q[h], k[h], v[h])
        for several, one in zip(together, alone, strict=True):
            np.testing.assert_allclose(several[h], one, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_redraws_and_second_calls_do_not_recompile(any_spec: str, head) -> None:
    traces = []

    @jit
    def both(features, q, k, v):
        traces.append(any_spec)
        return _both(any_spec)(features, q, k, v)

    first, again, other = (both(drawn(any_spec, seed), *head) for seed in (0, 0, 1))
    assert len(traces) == 1
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert (any_spec == "softmax") == np.array_equal(a, c)


@pytest.mark.parametrize("operation", ["apply", "rank"])
def test_work_is_linear_in_tokens(spec: str, operation: str) -> None:
    t, s = 101, 103
    q, k, v = jnp.ones((t, D)), jnp.ones((s, D)), jnp.ones((s, V))
    arguments = (q, k, v) if operation == "apply" else (q, k)
    traced = jax.make_jaxpr(getattr(attention(spec), operation))(drawn(spec), *arguments)
    shapes = _shapes(traced.jaxpr)
    assert shapes
    assert not [shape for shape in shapes if t in shape and s in shape]
    if operation == "rank":
        # Nor are the factors of a product ever multiplied out for a token.
        mapped = jax.eval_shape(feature_map(spec).apply_q, drawn(spec), q)
        widest = max(D, sum(max(f.shape[1] for f in block.factors) for block in mapped.blocks))
        assert max(np.prod(shape) / max(shape) for shape in shapes if t in shape or s in shape) <= widest


def _shapes(jaxpr) -> list[tuple[int, ...]]:
    shapes = []
    for equation in jaxpr.eqns:
        shapes += [tuple(out.aval.shape) for out in equation.outvars]
        for inner in jaxprs_in_params(equation.params):
            shapes += _shapes(inner)
    return shapes


def test_scopes_name_the_parts(any_spec: str, head) -> None:
    q, k, v = head
    att = attention(any_spec)
    maps = set() if any_spec == "softmax" else {"query map", "key map"}
    for operation, arguments, last in ((att.apply, (q, k, v), "contraction"), (att.rank, (q, k), "ranking")):
        equations = jax.make_jaxpr(operation)(drawn(any_spec), *arguments).jaxpr.eqns
        assert {str(e.source_info.name_stack).split("/")[0] for e in equations} == maps | {last}


@pytest.mark.parametrize(
    ("q", "k", "v", "mask", "message"),
    [
        ((2, 5, 4), (7, 4), (7, 3), None, "q has shape .2, 5, 4.*jax.vmap"),
        ((5, 4), (7, 3), (7, 3), None, "q has width 4 and k has width 3"),
        ((5, 4), (7, 4), (6, 3), None, "v has 6 tokens and k has 7"),
        ((5, 4), (7, 4), (7, 3), jnp.ones(5, bool), r"mask is bool\[5\]; it must be bool\[7\]"),
        ((5, 4), (7, 4), (7, 3), jnp.ones(7), r"mask is float32\[7\]; it must be bool\[7\]"),
    ],
)
def test_wrong_shapes_are_refused_in_one_line(any_spec: str, q, k, v, mask, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        attention(any_spec).apply(drawn(any_spec), jnp.ones(q), jnp.ones(k), jnp.ones(v), mask)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_chunks_change_nothing(spec: str, tokens, monkeypatch) -> None:
    q, k, v = tokens(1, 150, D), tokens(2, 170, D) * jnp.linspace(0.3, 1.5, 170)[:, None], tokens(3, 170, V)
    mask = np.arange(170) % 5 != 1
    whole = jit(_both(spec))(drawn(spec), q, k, v, mask)
    # Sixty-four tokens at a time, the least there is; the middle chunk of keys has none that counts.
    monkeypatch.setattr(chunked, "BUDGET", 1)
    pieces = jit(_both(spec))(drawn(spec), q, k, v, mask)
    empty = mask & ((np.arange(170) < 57) | (np.arange(170) >= 114))
    for found, expected in zip(pieces, whole, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    for result in jit(_both(spec))(drawn(spec), q, k, v, empty):
        assert np.all(np.isfinite(result))
    shapes = _shapes(jax.make_jaxpr(_both(spec))(drawn(spec), q, k, v).jaxpr)
    widest = max(D, *(sum(f.shape[1] for f in b.factors) for b in _blocks(spec, q)))
    assert max(np.prod(shape) for shape in shapes) <= 192 * max(widest, 64 * V)


def _blocks(spec: str, q):
    return jax.eval_shape(lambda q: feature_map(spec).apply_q(drawn(spec), q).blocks, q)


@pytest.mark.slow
def test_denominators_tell_which_rows_failed(any_spec: str, head, explicit_kernel) -> None:
    q, k, _ = head
    row_sums = jit(attention(any_spec).denominators)(drawn(any_spec), q, k)
    assert row_sums.shape == (T,)
    if any_spec == "softmax":
        assert np.all(row_sums > 0)
    else:
        kernel = explicit_kernel(feature_map(any_spec), drawn(any_spec), q, k)
        np.testing.assert_array_equal(row_sums > 0, kernel.sum(axis=1) > 0)


@pytest.mark.parametrize("length", [pytest.param(11, marks=pytest.mark.slow), 130])
def test_causal_attention_is_that_of_the_explicit_triangle(
    any_spec: str, length: int, tokens, explicit_kernel
):
    q, k, v = tokens(1, length, D), tokens(2, length, D), tokens(3, length, V)
    mask = np.arange(length) % 4 != 2
    if any_spec == "softmax":
        kernel = np.exp(np.asarray(q, np.float64) @ np.asarray(k, np.float64).T)
    else:
        # Constants that follow the data would follow the future: causal attention keeps those of the draw.
        kernel = explicit_kernel(feature_map(any_spec), drawn(any_spec), q, k, adapt=False)
    weights = np.tril(kernel) * mask
    row_sums = weights.sum(axis=1, keepdims=True)
    result = causal(any_spec)(drawn(any_spec), q, k, v, mask)
    # A row whose sum nearly cancels has few digits left.
    sound = np.abs(row_sums[:, 0]) > 1e-2 * np.abs(weights).sum(axis=1)
    assert sound.mean() > 0.9
    np.testing.assert_allclose(result[sound], (weights @ v / row_sums)[sound], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_causal_attention_does_not_know_the_future(any_spec: str, tokens) -> None:
    q, k, v = tokens(1, 130, D), tokens(2, 130, D), tokens(3, 130, V)
    before = causal(any_spec)(drawn(any_spec), q, k, v, np.ones(130, bool))
    # Later keys so long that on their scale, the earlier ones would vanish.
    changed = [np.concatenate([a[:70], 100 * a[70:]]) for a in (q, k, v)]
    after = causal(any_spec)(drawn(any_spec), *changed, np.ones(130, bool))
    np.testing.assert_array_equal(before[:70], after[:70])
    assert np.any(before[70:] != after[70:])


@lru_cache
def causal(spec: str):
    """`causal` of a mechanism, compiled once for all tests."""
    att = attention(spec)
    return jit(lambda features, q, k, v, mask: att.causal(features, q, k, v, mask))


def test_causal_attention_never_pairs_all_tokens(spec: str) -> None:
    t = 1000
    arguments = (jnp.ones((t, D)), jnp.ones((t, D)), jnp.ones((t, V)))
    shapes = _shapes(jax.make_jaxpr(attention(spec).causal)(drawn(spec), *arguments).jaxpr)
    fm = feature_map(spec)
    features = jax.eval_shape(lambda x: fm.apply_q(drawn(spec), x).values, arguments[0]).shape[1]
    # Chunks end where they end: a few tokens of padding, and never more than one chunk on the other side.
    assert max(np.prod(shape) for shape in shapes) <= (t + 64) * max(features, 64)


def test_causal_attention_needs_as_many_queries_as_keys(any_spec: str) -> None:
    with pytest.raises(
        ValueError, match="q has 3 tokens and k has 4; causal attention needs as many of both"
    ):
        attention(any_spec).causal(drawn(any_spec), jnp.ones((3, D)), jnp.ones((4, D)), jnp.ones((4, V)))


def test_heads_of_another_width_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="drawn for"):
        attention(spec).rank(drawn(spec), jnp.ones((5, 6)), jnp.ones((5, 6)))
