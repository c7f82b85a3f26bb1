"""Attention in other people's models: equal to jax's and flax's own with softmax, else close."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from robopolicy.attention import attention, attention_fn, dot_product_attention

# At full strength LLVM spends seconds on what runs for milliseconds here.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

B, T, S, N, K, H = 2, 5, 7, 4, 2, 6
LINEAR = "positive(m=12)"


def _normal(seed: int, *shape: int):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def _head_arrays(tokens: int = T, keys: int = S, key_heads: int = N):
    return _normal(1, B, tokens, N, H), _normal(2, B, keys, key_heads, H), _normal(3, B, keys, key_heads, H)


KEYS = np.arange(S) != 2
PAIRS = np.asarray(_normal(4, B, N, T, S)) > -0.5
LENGTHS = {
    "query_seq_lengths": np.array([3, 5], np.int32),
    "key_value_seq_lengths": np.array([6, 2], np.int32),
}
BIAS = _normal(5, 1, N, T, S)
CASES = {
    "plain": (_head_arrays(), {}),
    "one group, lengths": (_head_arrays(key_heads=1), LENGTHS),
    "groups, mask of keys, scale": (
        _head_arrays(key_heads=K),
        {"mask": np.tile(KEYS, (B, 1, 1, 1)), "scale": 0.3},
    ),
    "groups, mask of keys a head": (_head_arrays(key_heads=K), {"mask": PAIRS[:, :, :1], "scale": -0.7}),
    "groups, mask of pairs": (_head_arrays(key_heads=K), {"mask": PAIRS}),
    "mask of pairs for all heads, bias": (_head_arrays(), {"mask": PAIRS[:1, :1], "bias": BIAS}),
    "bias": (_head_arrays(key_heads=K), {"bias": BIAS}),
    "groups, causal, mask of keys": (_head_arrays(S, key_heads=K), {"is_causal": True, "mask": KEYS}),
    "causal, bias": (_head_arrays(S), {"is_causal": True, "bias": BIAS[:, :, :1]}),
    "no batch": (tuple(a[0] for a in _head_arrays()), {"mask": PAIRS[0]}),
}


@pytest.mark.slow
def test_softmax_and_its_gradients_equal_those_of_jax() -> None:
    def loss(attend, arrays, options):
        found = attend(*arrays, **options)
        return jnp.sum(jnp.sin(1.0 + jnp.arange(found.size)).reshape(found.shape) * found), found

    @partial(jit, static_argnums=0)
    def all_of(attend):
        differentiated = jax.grad(partial(loss, attend), has_aux=True)
        return {case: differentiated(*given) for case, given in CASES.items()}

    # Row 0 of a causal head sees one key: its derivative is zero, which a guard of row sums can get wrong.
    ours = all_of(partial(dot_product_attention, mechanism="softmax"))
    theirs = all_of(jax.nn.dot_product_attention)
    for case, found in ours.items():
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(theirs[case]), strict=True):
            assert a.dtype == b.dtype, case
            assert a.shape == b.shape, case
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5, err_msg=case)


@pytest.mark.slow
def test_half_precision_is_computed_in_single_precision() -> None:
    arrays = [a.astype(jnp.bfloat16) for a in _head_arrays()]
    for spec in ("softmax", LINEAR):
        attend = jit(partial(dot_product_attention, mechanism=spec))
        found, exact = attend(*arrays), attend(*(a.astype(jnp.float32) for a in arrays))
        assert found.dtype == jnp.bfloat16
        np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))
        if spec == "softmax":
            theirs = jit(jax.nn.dot_product_attention)(*arrays)
            np.testing.assert_allclose(np.float32(found), np.float32(theirs), atol=0.03)


@pytest.mark.parametrize("is_causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_head_of_a_linear_mechanism_equals_attention_of_that_head(is_causal: bool) -> None:
    mask = PAIRS[:, :, :1]
    attend = partial(dot_product_attention, mechanism=LINEAR, is_causal=is_causal)
    one_head = attention(LINEAR).causal if is_causal else attention(LINEAR).apply

    @jit
    def all_of(features, q, k, v):
        heads = [
            (q[b, :, n], k[b, :, n // (N // K)], v[b, :, n // (N // K)]) for b in range(B) for n in range(N)
        ]
        q_heads, k_heads, v_heads = (jnp.stack(arrays) for arrays in zip(*heads, strict=True))
        root = H**-0.25
        alone = jax.vmap(partial(one_head, features))(
            root * q_heads, root * k_heads, v_heads, jnp.asarray(mask[:, :, 0]).reshape(B * N, S)
        )
        return attend(q, k, v, mask=mask, seed=3), attend(q, k, v, mask=mask, features=features), alone

    features = attention(LINEAR).init(jax.random.key(3), H)
    by_seed, by_features, alone = all_of(features, *_head_arrays(S, key_heads=K))
    np.testing.assert_allclose(by_seed, by_features, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_seed.swapaxes(1, 2).reshape(B * N, S, H), alone, rtol=1e-4, atol=1e-5)


@pytest.mark.full
def test_the_error_falls_with_the_number_of_vectors() -> None:
    q, k, v = (0.5 * a for a in _head_arrays(S))
    options = [{}, {"is_causal": True}, {"mask": KEYS[None, None, None]}]

    def error(m: int, given: dict, exact):
        spec = f"positive_antithetic(m={m}, coupling=iid)"
        draws = jax.vmap(lambda key: attention(spec).init(key, H))(jax.random.split(jax.random.key(0), 8))
        attend = partial(dot_product_attention, q, k, v, mechanism=spec, **given)
        return jnp.mean((jax.vmap(lambda drawn: attend(features=drawn))(draws) - exact) ** 2)

    @jit
    def errors():
        exact = [jax.nn.dot_product_attention(q, k, v, **given) for given in options]
        return [[error(m, *case) for case in zip(options, exact, strict=True)] for m in (32, 1024)]

    few, many = np.asarray(errors())
    # Thirty-two times as many vectors: a thirty-second of the square, with a factor of four to spare.
    assert np.all(many < few / 8)
    assert np.all(many < 1e-3)


@pytest.mark.slow
def test_a_seed_fixes_the_features() -> None:
    q, k, v = _head_arrays()
    attend = partial(dot_product_attention, mechanism="positive(m=11)")
    inside = jit(partial(attend, seed=5))(q, k, v)
    np.testing.assert_array_equal(
        jit(partial(attend, seed=5, mechanism=" positive( m=11 )"))(q, k, v), inside
    )
    drawn = attention("positive(m=11)").init(jax.random.key(5), H)
    np.testing.assert_allclose(jit(attend)(q, k, v, features=drawn), inside, rtol=1e-4, atol=1e-6)
    assert not np.any(np.isclose(jit(partial(attend, seed=6))(q, k, v), inside, rtol=1e-6, atol=0))


@pytest.mark.slow
def test_features_may_be_in_a_variable_of_flax() -> None:
    q, k, v = _head_arrays()
    attend = jit(partial(dot_product_attention, q, k, v, mechanism=LINEAR))
    drawn = attention(LINEAR).init(jax.random.key(5), H)
    for held in (nnx.Variable(drawn), jax.tree.leaves(drawn)):
        np.testing.assert_array_equal(attend(features=held), attend(features=drawn))


@pytest.mark.slow
def test_vmap_equals_a_batch() -> None:
    q, k, v = _head_arrays()
    attend = partial(dot_product_attention, mechanism=LINEAR)
    np.testing.assert_allclose(jit(jax.vmap(attend))(q, k, v), jit(attend)(q, k, v), rtol=1e-5, atol=1e-6)


def test_a_query_without_keys_gets_zero() -> None:
    q, k, v = _head_arrays()
    for spec, mask in ((LINEAR, np.zeros((1, 1, 1, S), bool)), ("softmax", np.zeros((1, 1, T, S), bool))):
        found = jit(partial(dot_product_attention, mechanism=spec))(q, k, v, mask=mask)
        np.testing.assert_array_equal(found, 0)


@pytest.mark.slow
def test_padded_queries_may_be_anything(spec_or_softmax: str) -> None:
    lengths = (4, 2, 0)  # repeated in turn, real queries keep their mean
    q, k, v = (_normal(seed, 3, 4, 2, H) / 2 for seed in (1, 2, 3))
    real = (np.arange(4) < np.array(lengths)[:, None])[:, :, None, None]
    attend = partial(dot_product_attention, mechanism=spec_or_softmax, seed=3)

    def padded(q):
        return attend(q, k, v, query_seq_lengths=jnp.array(lengths))

    found, gradients = jit(lambda q: (padded(q), jax.grad(lambda q: padded(q).sum())(q)))(
        jnp.where(real, q, jnp.nan)
    )
    for row, length in enumerate(lengths[:2]):
        alone = jit(attend)(q[row, :length], k[row], v[row])
        np.testing.assert_allclose(found[row, :length], alone, rtol=2e-3, atol=2e-3)
    np.testing.assert_array_equal(found[~real[..., 0, 0]], 0)
    assert np.isfinite(gradients).all()
    np.testing.assert_array_equal(gradients[~real[..., 0, 0]], 0)


def _drawn(spec: str, width: int):
    """Shapes of features of heads of this width."""
    return jax.eval_shape(lambda key: attention(spec).init(key, width), jax.random.key(0))


FEATURES = r"features are not those of positive\(m=12\) for heads of width 6: they must come from"


@pytest.mark.parametrize(
    ("spec", "options", "says"),
    [
        (LINEAR, {"bias": np.zeros((1, N, T, S))}, r"bias has shape \(1, 4, 5, 7\): positive\(m=12\) takes"),
        (
            LINEAR,
            {"mask": PAIRS},
            r"mask has shape \(2, 4, 5, 7\): .* takes only is_causal and masks \[..., 1, 7\] of keys",
        ),
        (LINEAR, {"mask": KEYS.astype(np.float32)}, "mask is float32: it must be bool"),
        ("softmax", {"mask": PAIRS[:, :3]}, r"mask has shape \(2, 3, 5, 7\): it must broadcast to"),
        ("softmax", {"bias": np.zeros((1, 1, 1, 1, 1))}, "bias has shape"),
        (LINEAR, {"is_causal": True}, "is_causal is True: query has 5 tokens and key 7, they must be equal"),
        ("softmax", {"is_causal": True, "bias": BIAS}, "is_causal is True: query has 5 tokens and key 7"),
        (LINEAR, {"key_value_seq_lengths": np.ones(3, np.int32)}, r"key_value_seq_lengths has shape \(3,\)"),
        (LINEAR, {"query_seq_lengths": np.ones((1, 2), np.int32)}, r"query_seq_lengths has shape \(1, 2\)"),
        ("positive(m=0)", {}, "m is '0'"),
        (None, {}, "spec is None: it must be a string"),
        (LINEAR, {"seed": 1.5}, r"seed is 1\.5: it must be a whole number from 0 to 4294967295"),
        (LINEAR, {"features": _drawn(LINEAR, 3)}, FEATURES),
        (LINEAR, {"features": _drawn("positive(m=13)", H)}, FEATURES),
        *(
            (spec, {"features": _drawn(LINEAR, H)}, "features are not those of ")
            for spec in ("angular_hybrid(m=8, n=8)", "softmax")
        ),
    ],
)
def test_unsupported_options_are_refused_in_one_line(spec: str, options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        dot_product_attention(*_head_arrays(), mechanism=spec, **options)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (
            [(T, H), (S, N, H), (S, N, H)],
            r"query has shape \(5, 6\): it must be \[batch, tokens, heads, width\]",
        ),
        ([(B, T, N, H), (B, S, N, 5), (B, S, N, H)], "query, key and value have shapes"),
        ([(B, T, N, H), (B, S, N, H), (B, T, N, H)], "query, key and value have shapes"),
        ([(B, T, N, H), (1, S, N, H), (1, S, N, H)], "query, key and value have shapes"),
        ([(B, T, N, H), (B, S, 3, H), (B, S, 3, H)], "query has 4 heads and key has 3: key's must divide"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_in_one_line(shapes: list, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        dot_product_attention(*(jnp.ones(shape) for shape in shapes), mechanism=LINEAR)
    assert "\n" not in str(raised.value)


def _nnx(fn, **options) -> nnx.Module:
    options = {"attention_fn": fn} | options if fn else options
    return nnx.MultiHeadAttention(N, 8, N * H, decode=False, rngs=nnx.Rngs(0), **options)


def _linen(fn, **options) -> linen.Module:
    options = {"attention_fn": fn} | options if fn else options
    return linen.MultiHeadDotProductAttention(N, qkv_features=N * H, **options)


@pytest.mark.slow
def test_flax_models_compute_the_same_with_softmax() -> None:
    theirs, ours = _nnx(None), _nnx(attention_fn("softmax"))
    variables = jit(_linen(None).init)(jax.random.key(0), _normal(6, B, S, 8))

    def all_of(nnx_model, linen_model):
        results = {}
        for lead in ((), (B,), (3, B)):
            x = _normal(6, *lead, S, 8)
            ones, keys = jnp.ones(x.shape[:-1]), jnp.broadcast_to(KEYS, x.shape[:-1])
            masks = [None] if lead == () else [nnx.make_attention_mask(jnp.ones((*lead, 1)), keys)]
            masks += [nnx.make_attention_mask(ones, keys), nnx.make_causal_mask(ones)] if lead == (B,) else []
            results[lead] = [nnx_model(x, mask=mask) for mask in masks] + [nnx_model(x, is_causal=True)]
            results[lead] += [linen_model.apply(variables, x, mask=mask) for mask in masks]
        return results

    ours = jit(lambda: all_of(ours, _linen(attention_fn("softmax"))))()
    theirs = jit(lambda: all_of(theirs, _linen(None)))()
    for lead, results in ours.items():
        for a, b in zip(results, theirs[lead], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_flax_model_trains_with_a_linear_mechanism() -> None:
    x, target = 0.3 * _normal(6, B, S, 8), _normal(7, B, S, 8)
    theirs, ours = _nnx(None, num_kv_heads=K), _nnx(attention_fn("positive(m=512)"), num_kv_heads=K)

    def loss(model):
        found = model(x)
        return jnp.mean((found - target) ** 2), found

    (_, expected), slopes = nnx.jit(nnx.value_and_grad(loss, has_aux=True))(theirs)
    (_, found), gradients = nnx.jit(nnx.value_and_grad(loss, has_aux=True))(ours)
    for a, b in [(found, expected), *zip(*map(jax.tree.leaves, (gradients, slopes)), strict=True)]:
        assert jnp.linalg.norm(a - b) < 0.1 * jnp.linalg.norm(b) + 0.01


@pytest.mark.slow
def test_a_causal_function_makes_every_call_causal() -> None:
    q, k, v = _head_arrays(S)
    always, at_times = jit(attention_fn(LINEAR, is_causal=True)), attention_fn(LINEAR)
    expected = jit(partial(dot_product_attention, mechanism=LINEAR, is_causal=True))(q, k, v)
    np.testing.assert_array_equal(always(q, k, v), expected)
    np.testing.assert_array_equal(jit(partial(at_times, is_causal=True))(q, k, v), expected)
    assert not np.allclose(jit(at_times)(q, k, v), expected)


@pytest.mark.slow
def test_dtype_and_precision_of_a_model_have_effect() -> None:
    attend = attention_fn(LINEAR)
    for precision in (None, "highest", jax.lax.Precision.HIGHEST):
        lowered = jax.jit(partial(attend, precision=precision)).lower(*_head_arrays())
        assert ("HIGHEST" in lowered.as_text()) == (precision is not None)
    assert jax.eval_shape(_nnx(attend, dtype=jnp.bfloat16), _normal(6, B, S, 8)).dtype == jnp.bfloat16
    assert jax.eval_shape(partial(attend, dtype=jnp.float16), *_head_arrays()).dtype == jnp.float16


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"dropout_rate": 0.1}, "dropout_rate is 0.1: it must be 0, since positive.m=12. drops no weights"),
        ({"module": object()}, "module is of type object: it must be None"),
        ({"mask": np.ones((B, 1, T, S))}, r"mask has shape \(2, 1, 5, 7\)"),
    ],
)
def test_unsupported_options_of_flax_are_refused(options: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        attention_fn(LINEAR)(*_head_arrays(), **options)


def test_dropout_is_allowed_without_training() -> None:
    attend = partial(attention_fn(LINEAR), dropout_rate=0.1, deterministic=True)
    assert jax.eval_shape(attend, *_head_arrays()).shape == (B, T, N, H)


def test_an_unknown_spec_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unknown attention 'positiv'"):
        attention_fn("positiv(m=8)")
    with pytest.raises(ValueError, match=r"^(geometric: )?p is 1\.0: "):
        attention_fn("geometric(m=4, p=1)")
    with pytest.raises(ValueError, match=r"^seed is -1: "):
        attention_fn(LINEAR, seed=-1)


def test_lists_are_arrays() -> None:
    query = np.ones((2, 1, 3)).tolist()
    result = dot_product_attention(query, query, query, mechanism="softmax")
    np.testing.assert_allclose(result, 1, rtol=1e-6)
