"""Attention of every mechanism against its explicit matrix: apply, rank, masks, gradients, cost."""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from robopolicy.attention import attention, chunked, feature_map, kernel_estimate

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

T, S, D, V = 5, 11, 4, 3
MASK, FILLINGS = np.arange(S) % 3 != 1, (0.0, 1e30, np.nan, np.inf)
STEP = 2e-3


@lru_cache
def drawn(spec: str, seed: int = 0):
    """Features of one head; a first call inside a compiled function must not cache its tracers."""
    with jax.ensure_compile_time_eval():
        return attention(spec).init(jax.random.key(seed), D)


def _doubled(array):
    """`array` in double precision."""
    values = np.asarray(array)
    return jnp.asarray(values, {"f": np.float64, "c": np.complex128}.get(values.dtype.kind, values.dtype))


def _both(spec: str):
    """(features, q, k, v, mask=None) -> (apply, rank)."""
    att = attention(spec)
    return lambda f, q, k, v, mask=None: (att.apply(f, q, k, v, mask), att.rank(f, q, k, mask))


def _tokens(seed: int, count: int, width: int):
    """[count, width], random tokens of length one."""
    x = jax.random.normal(jax.random.key(seed), (count, width))
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


@lru_cache
def heads():
    """By name: seed of the features, q [T, D], k [S, D], v [S, V] whose last column is one, and mask [S]."""
    q, k, v = _tokens(1, T, D), _tokens(2, S, D), _tokens(3, S, V).at[:, -1].set(1)
    whole, most = np.ones(S, bool), np.arange(S) != 2
    cases = {
        "plain": (0, q, k, v, whole),
        "other draw": (1, q, k, v, whole),
        # A scale for each key or each block does not cancel, so it is an error here.
        "lengths": (0, q, k * jnp.linspace(0.1, 2.0, S)[:, None], v, whole),
        "no key": (0, q, k, v, np.zeros(S, bool)),
        "norm 0": (0, 0 * q, 0 * k, v, most),
        "norm 100": (0, 100 * q, 100 * k, v, most),
        "between": (0, q, k, v, most),
    }
    for name, sign in (("ahead", 1), ("behind", -1)):
        moved = (a + sign * STEP * d for a, d in zip((q, k, v), _direction(), strict=True))
        cases[name] = (0, *moved, most)
    for filling in FILLINGS:
        padded = (jnp.where(MASK[:, None], a, filling) for a in (k, v))
        cases[f"filled with {filling}"] = (0, q, *padded, MASK)
    return cases


def _direction() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape).astype(np.float32) for shape in ((T, D), (S, D), (S, V))]


@lru_cache
def results(spec: str) -> dict[str, dict[str, np.ndarray]]:
    """The results of a mechanism for every head of `heads`, by name, from one program."""
    features = [drawn(spec, seed) for seed, *_ in heads().values()]
    features = jax.tree.map(lambda *leaves: jnp.stack(leaves), *features)
    arrays = [jnp.stack(column) for column in zip(*(case[1:] for case in heads().values()), strict=True)]
    found = jit(jax.vmap(partial(_everything, spec)))(features, *arrays)
    return {name: jax.tree.map(lambda a, i=i: np.asarray(a[i]), found) for i, name in enumerate(heads())}


def _everything(spec: str, features, q, k, v, mask):
    def loss(q, k, v):
        apply, rank = _both(spec)(features, q, k, v, mask)
        loss = sum(jnp.sum(jnp.sin(1.0 + jnp.arange(r.size)).reshape(r.shape) * r) for r in (apply, rank))
        return loss, (apply, rank)

    (value, (apply, rank)), gradients = jax.value_and_grad(loss, (0, 1, 2), has_aux=True)(q, k, v)
    found = {"loss": value, "apply": apply, "rank": rank, "gradients": gradients}
    found["denominators"] = attention(spec).denominators(features, q, k, mask)
    if spec != "softmax":
        fm, k = feature_map(spec), jnp.where(mask[:, None], k, 0)
        found["estimate"] = kernel_estimate(fm, features, q, k)
        features = fm.adapt(features, q, k, mask)
        queries, keys = fm.apply_q(features, q), fm.apply_k(features, k)
        found["queries"], found["keys"] = _pair(queries), _pair(keys)
    return found


def _pair(side):
    return side.values, side.log_scale


def _kernel(found, q, k, mask) -> np.ndarray:
    """[T, S] in double precision, from the features written out; exact for softmax, which has none."""
    if "queries" not in found:
        k = np.where(mask[:, None], k, 0)
        return np.exp(np.asarray(q, np.float64) @ np.asarray(k, np.float64).T)
    (q, log_q), (k, log_k) = jax.tree.map(np.float64, (found["queries"], found["keys"]))
    return (q @ k.T) * np.exp(log_q[:, None] + log_k)


@pytest.mark.parametrize("name", ["plain", "other draw", "lengths", "filled with nan"])
def test_apply_and_rank_equal_those_of_the_explicit_matrix(any_spec: str, name: str) -> None:
    (_, q, k, v, mask), found = heads()[name], results(any_spec)[name]
    weights = _kernel(found, q, k, mask) * mask
    expected = weights / weights.sum(axis=1, keepdims=True)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if name == "lengths" else {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(found["apply"], expected @ np.where(mask[:, None], v, 0), **tolerance)
    np.testing.assert_allclose(found["rank"], expected.sum(axis=0), **tolerance)
    np.testing.assert_array_equal(found["denominators"] > 0, weights.sum(axis=1) > 0)
    # All rows sum to one.
    np.testing.assert_allclose(found["apply"][:, -1], np.ones(T), rtol=1e-5)
    np.testing.assert_allclose(found["rank"].sum(), T, rtol=1e-5)


def test_masked_keys_have_no_effect(any_spec: str) -> None:
    first, *others = (results(any_spec)[f"filled with {filling}"] for filling in FILLINGS)
    for found in others:
        for name in ("apply", "rank", "denominators"):
            np.testing.assert_allclose(found[name], first[name], rtol=1e-5, atol=1e-6)
    for found in (first, *others):
        np.testing.assert_array_equal(found["rank"][~MASK], 0)
        assert all(np.all(np.isfinite(g)) for g in found["gradients"])
        for gradient in found["gradients"][1:]:
            np.testing.assert_array_equal(gradient[~MASK], 0)
            assert np.all(np.any(gradient[MASK] != 0, axis=1))


def test_without_keys_all_results_are_zero(any_spec: str) -> None:
    for name in ("apply", "rank", "gradients"):
        assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(results(any_spec)["no key"][name]))


def test_finite_at_any_norm(any_spec: str) -> None:
    for name in ("norm 0", "plain", "norm 100"):
        found = results(any_spec)[name]
        for result in ("apply", "rank", "denominators", "gradients"):
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found[result])), (name, result)
        if any_spec != "softmax":
            for values, log_scale in (found["queries"], found["keys"]):
                # Weights of a hybrid may exceed one; no exponential does.
                assert np.all(np.abs(values) <= 1.5)
                assert np.all(np.isfinite(log_scale))


def test_gradients_equal_finite_differences(any_spec: str) -> None:
    # The derivative of signs is zero except at their jumps, which no step here crosses.
    found = results(any_spec)
    difference = (found["ahead"]["loss"] - found["behind"]["loss"]) / (2 * STEP)
    slope = sum(np.sum(g * d) for g, d in zip(found["between"]["gradients"], _direction(), strict=True))
    # Rounding: some 1e-6 of a loss of about ten, over the step.
    np.testing.assert_allclose(slope, difference, rtol=3e-3, atol=1e-2)


def test_kernel_estimates_equal_those_of_the_features_written_out(any_spec: str) -> None:
    for name in ("plain", "lengths") if any_spec != "softmax" else ():
        (_, q, k, _, mask), found = heads()[name], results(any_spec)[name]
        expected = _kernel(found, q, k, mask)
        np.testing.assert_allclose(found["estimate"], expected, rtol=2e-5, atol=1e-6)


def test_estimates_do_not_jump(spec: str) -> None:
    if spec.startswith("clustered_hybrid"):
        pytest.skip("by definition, a token that changes its cluster changes its estimator")
    # Rounding decides at a jump, and differs between runtimes. Bisection between sets of tokens finds one.
    fm, (_, q, k, _, _) = feature_map(spec), heads()["plain"]
    ways, features = (_tokens(4, T, D) - q, _tokens(5, S, D) - k), drawn(spec)
    estimate = jit(lambda share: kernel_estimate(fm, features, q + share * ways[0], k + share * ways[1]))
    first, last = 0.0, 1.0
    start, end = estimate(first), estimate(last)
    for _ in range(20):
        half = (first + last) / 2
        middle = estimate(half)
        if jnp.max(jnp.abs(middle - start)) > jnp.max(jnp.abs(end - middle)):
            last, end = half, middle
        else:
            first, start = half, middle
    np.testing.assert_allclose(start, end, rtol=0, atol=3e-3)


def test_a_key_fixes_a_draw_and_another_key_changes_it(any_spec: str) -> None:
    again = attention(any_spec).init(jax.random.key(0), D)
    for a, b in zip(*map(jax.tree.leaves, (drawn(any_spec), again)), strict=True):
        np.testing.assert_array_equal(a, b)
    plain, other = (results(any_spec)[name]["apply"] for name in ("plain", "other draw"))
    same = plain[:, :-1] == other[:, :-1]
    assert np.all(same) if any_spec == "softmax" else not np.any(same)
    # All draws share one compiled program.
    first, other = (jax.tree.map(jax.typeof, drawn(any_spec, seed)) for seed in (0, 1))
    assert first == other


def test_no_mask_equals_a_mask_of_all_keys(spec_or_softmax: str) -> None:
    found = jit(_both(spec_or_softmax))(drawn(spec_or_softmax), *heads()["plain"][1:4])
    for name, result in zip(("apply", "rank"), found, strict=True):
        np.testing.assert_allclose(result, results(spec_or_softmax)["plain"][name], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_many_features_approach_softmax() -> None:
    many = "positive_antithetic(m=4096)"
    estimate = jit(_both(many))(drawn(many), *heads()["plain"][1:4])
    exact = results("softmax")["plain"]
    np.testing.assert_allclose(estimate[0], exact["apply"], atol=0.03)
    np.testing.assert_allclose(estimate[1], exact["rank"], atol=0.03)


@pytest.mark.slow
def test_negative_denominators_stay_negative() -> None:
    # One trigonometric feature pair, and keys where its cosine of the difference is negative.
    att = attention("trigonometric(m=1)")
    features = jax.tree.map(jnp.ones_like, jax.eval_shape(lambda key: att.init(key, 1), jax.random.key(0)))
    q, v = jnp.zeros((1, 1)), jnp.ones((2, 1))
    keys = jnp.array([[[jnp.pi], [jnp.pi]], [[jnp.pi], [jnp.pi / 3]]])

    @jit
    @jax.vmap
    def all_of(k):
        return att.apply(features, q, k, v), att.rank(features, q, k), att.denominators(features, q, k)

    (one, _), (ranks, mixed), ((below,), _) = all_of(keys)
    np.testing.assert_allclose(one, [[1.0]], rtol=1e-6)
    np.testing.assert_allclose(ranks, [0.5, 0.5], rtol=1e-6)
    assert below < 0
    weights = np.array([-np.exp(np.pi**2 / 2), 0.5 * np.exp(np.pi**2 / 18)])
    np.testing.assert_allclose(mixed, weights / weights.sum(), rtol=1e-5)


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
        # The factors of a product are never multiplied out for a token either.
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


def test_scopes_name_the_parts(spec_or_softmax: str) -> None:
    q, k, v = heads()["plain"][1:4]
    att = attention(spec_or_softmax)
    maps = set() if spec_or_softmax == "softmax" else {"query map", "key map"}
    for operation, arguments, last in ((att.apply, (q, k, v), "contraction"), (att.rank, (q, k), "ranking")):
        equations = jax.make_jaxpr(operation)(drawn(spec_or_softmax), *arguments).jaxpr.eqns
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
def test_wrong_shapes_are_refused_in_one_line(spec_or_softmax: str, q, k, v, mask, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        attention(spec_or_softmax).apply(drawn(spec_or_softmax), jnp.ones(q), jnp.ones(k), jnp.ones(v), mask)
    assert "\n" not in str(raised.value)


def test_chunks_change_nothing(slow_spec: str, monkeypatch) -> None:
    spec = slow_spec
    q, k, v = _tokens(1, 149, D), _tokens(2, 170, D), _tokens(3, 170, V)
    k = k * jnp.linspace(0.3, 1.5, 170)[:, None]
    mask = np.arange(170) % 5 != 1
    # In float64, since the order of the sums changes: a small denominator magnifies its rounding errors.
    with jax.enable_x64(True):
        inputs = jax.tree.map(_doubled, (drawn(spec), q, k, v))
        whole = jit(_both(spec))(*inputs, mask)
        # At most 64 tokens at a time, the minimum. The last chunks have padding, and the middle chunk of keys
        # is masked.
        for name in ("BUDGET", "CHUNK"):
            monkeypatch.setattr(chunked, name, 1)
        pieces = jit(_both(spec))(*inputs, mask)
    for found, expected in zip(pieces, whole, strict=True):
        assert expected.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    in_pieces = jit(_both(spec))
    empty = mask & ((np.arange(170) < 57) | (np.arange(170) >= 114))
    assert all(np.all(np.isfinite(result)) for result in in_pieces(drawn(spec), q, k, v, empty))
    shapes = _shapes(jax.make_jaxpr(_both(spec))(drawn(spec), q, k, v).jaxpr)
    widest = max(D, *(sum(f.shape[1] for f in b.factors) for b in _blocks(spec, q)))
    assert max(np.prod(shape) for shape in shapes) <= 192 * max(widest, 64 * V)


def _blocks(spec: str, q):
    return jax.eval_shape(lambda q: feature_map(spec).apply_q(drawn(spec), q).blocks, q)


@lru_cache
def causal(spec: str):
    """q, k, v and mask of a head, and the results for it and for one that differs from token 70 on."""
    att, mask = attention(spec), np.arange(130) % 4 != 2
    arrays = [np.asarray(_tokens(seed, 130, width)) for seed, width in ((1, D), (2, D), (3, V))]
    # Later keys are so long that earlier ones vanish on their scale.
    both = [np.stack([a, np.concatenate([a[:70], 100 * a[70:]])]) for a in arrays]

    def one(q, k, v):
        found = {"result": att.causal(drawn(spec), q, k, v, mask)}
        if spec != "softmax":
            # Constants that follow the data would depend on later tokens, so those of the draw stay.
            fm = feature_map(spec)
            queries, keys = fm.apply_q(drawn(spec), q), fm.apply_k(drawn(spec), k)
            found["queries"], found["keys"] = (
                (queries.values, queries.log_scale),
                (keys.values, keys.log_scale),
            )
        return found

    return (*arrays, mask), jax.tree.map(np.asarray, jit(jax.vmap(one))(*both))


def test_causal_attention_equals_that_of_the_explicit_triangle(spec_or_softmax: str) -> None:
    (q, k, v, mask), both = causal(spec_or_softmax)
    found = jax.tree.map(lambda a: a[0], both)
    weights = np.tril(_kernel(found, q, k, np.ones_like(mask))) * mask
    row_sums = weights.sum(axis=1, keepdims=True)
    # A row whose sum nearly cancels has few digits left.
    sound = np.abs(row_sums[:, 0]) > 1e-2 * np.abs(weights).sum(axis=1)
    assert sound.mean() > 0.9
    expected = (weights @ v / row_sums)[sound]
    np.testing.assert_allclose(found["result"][sound], expected, rtol=1e-3, atol=1e-3)


def test_causal_attention_does_not_depend_on_later_tokens(spec_or_softmax: str) -> None:
    before, after = causal(spec_or_softmax)[1]["result"]
    np.testing.assert_array_equal(before[:70], after[:70])
    assert np.any(before[70:] != after[70:])


def test_causal_attention_computes_no_matrix_of_all_pairs(spec: str) -> None:
    t = 1000
    arguments = (jnp.ones((t, D)), jnp.ones((t, D)), jnp.ones((t, V)))
    shapes = _shapes(jax.make_jaxpr(attention(spec).causal)(drawn(spec), *arguments).jaxpr)
    fm = feature_map(spec)
    features = jax.eval_shape(lambda x: fm.apply_q(drawn(spec), x).values, arguments[0]).shape[1]
    # Tokens with some padding on one side, and at most one chunk on the other.
    assert max(np.prod(shape) for shape in shapes) <= (t + 64) * max(features, 64)


def test_causal_attention_needs_as_many_queries_as_keys(spec_or_softmax: str) -> None:
    with pytest.raises(
        ValueError, match="q has 3 tokens and k has 4; causal attention needs as many of both"
    ):
        attention(spec_or_softmax).causal(
            drawn(spec_or_softmax), jnp.ones((3, D)), jnp.ones((4, D)), jnp.ones((4, V))
        )


def test_heads_of_another_width_are_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="drawn for"):
        attention(spec).rank(drawn(spec), jnp.ones((5, 6)), jnp.ones((5, 6)))


@pytest.mark.parametrize("mechanism", ["softmax", pytest.param("poisson(m=8)", marks=pytest.mark.slow)])
def test_tokens_of_16_bits_count_as_in_float32(mechanism: str) -> None:
    short = [3 * _tokens(seed, S, D).astype(jnp.bfloat16) for seed in range(3)]
    wide = [x.astype(jnp.float32) for x in short]
    for name, count in (("apply", 3), ("causal", 3), ("rank", 2), ("denominators", 2)):
        call = partial(getattr(attention(mechanism), name), drawn(mechanism))
        np.testing.assert_array_equal(call(*short[:count]), call(*wide[:count]))


@pytest.mark.slow
def test_many_tokens_of_16_bits_need_no_conversion() -> None:
    mechanism, x = attention("positive_antithetic(m=64)"), jnp.ones((20_000, 8), jnp.bfloat16) / 4
    found = mechanism.apply(mechanism.init(jax.random.key(0), 8), x, x, x)
    np.testing.assert_allclose(found, 0.25, rtol=1e-2)
