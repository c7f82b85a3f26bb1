"""The flax module: heads are independent, features are no parameters, redrawing is explicit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from robopolicy.attention import attention
from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.policies.multihead import Features, MultiHeadAttention, tempered, unit

SPECS = ["softmax", "angular_hybrid(m=4, n=3)", "optimal_positive(m=5, coupling=hadamard)"]


def _module(spec: str, seed: int = 0, **options) -> MultiHeadAttention:
    return MultiHeadAttention(spec, 12, 3, rngs=nnx.Rngs(params=seed, features=seed + 1), **options)


@pytest.mark.rest_slow
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("norm_fn", [unit, tempered])
def test_the_module_equals_its_heads_one_by_one(spec: str, norm_fn) -> None:
    module = _module(spec, norm_fn=norm_fn)
    padded = jax.random.normal(jax.random.key(1), (7, 12)).at[3].set(jnp.nan)
    mask, tokens = jnp.arange(7) != 3, padded.at[3].set(padded[0])
    mechanism = attention(spec)
    q, k, v = (linear(tokens).reshape(7, 3, 4) for linear in (module.query, module.key, module.value))
    for operation, attend in (("apply", type(module).__call__), ("causal", type(module).causal)):
        found = nnx.jit(attend)(module, padded, mask)
        heads = []
        for h in range(3):
            features = jax.tree.map(lambda leaf, h=h: leaf[h], module.features.get_value())
            run = jax.jit(getattr(mechanism, operation))
            heads.append(run(features, norm_fn(q[:, h]), norm_fn(k[:, h]), v[:, h], mask))
        np.testing.assert_allclose(found, module.out(jnp.concatenate(heads, axis=1)), rtol=1e-4, atol=1e-5)


def test_the_kernel_of_tempered_tokens_is_the_usual_one() -> None:
    q, k = jax.random.normal(jax.random.key(0), (2, 5, 9))
    np.testing.assert_allclose(tempered(q) @ tempered(k).T, q @ k.T / 3.0, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MECHANISMS)
def test_features_are_no_parameters(name: str) -> None:
    module = _module(MECHANISMS[name].example)
    trained = nnx.state(module, nnx.Param)
    assert sum(leaf.size for leaf in jax.tree.leaves(trained)) == 4 * 12 * 12 + 12
    drawn = jax.tree.leaves(nnx.state(module, Features))
    assert drawn
    tokens = jnp.ones((5, 12))
    gradients = nnx.grad(lambda m: jnp.sum(m(tokens) ** 2))(module)
    assert jax.tree.structure(gradients) == jax.tree.structure(trained)


def test_redrawing_is_explicit_and_leaves_parameters_alone() -> None:
    module = _module("angular_hybrid(m=4, n=3)")
    tokens = jax.random.normal(jax.random.key(1), (7, 12))
    traces = []

    @nnx.jit
    def run(module, tokens):
        traces.append(1)
        return module(tokens)

    before, kept = run(module, tokens), jax.tree.leaves(nnx.state(module, nnx.Param))
    module.redraw(jax.random.key(9))
    after = run(module, tokens)
    module.redraw(jax.random.key(9))
    np.testing.assert_array_equal(after, run(module, tokens))
    assert np.all(before != after)
    assert len(traces) == 1
    for a, b in zip(kept, jax.tree.leaves(nnx.state(module, nnx.Param)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_heads_have_features_of_their_own() -> None:
    (vectors,) = [
        leaf for leaf in jax.tree.leaves(_module("positive(m=4)").features.get_value()) if leaf.ndim == 3
    ]
    assert vectors.shape == (3, 4, 4)
    assert np.all(vectors[0] != vectors[1])


def test_a_mask_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mask is bool\[5\]; it must be bool\[7\]"):
        _module("softmax")(jnp.ones((7, 12)), jnp.ones(5, bool))


@pytest.mark.parametrize(
    ("width", "heads", "says"), [(12, 5, "heads is 5: give head_dim"), (12, 0, "heads is 0")]
)
def test_wrong_sizes_are_refused(width: int, heads: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        MultiHeadAttention("softmax", width, heads, rngs=nnx.Rngs(0))
