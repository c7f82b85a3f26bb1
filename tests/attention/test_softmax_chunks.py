"""Exact softmax over many tokens, a few rows of weights at a time."""

from collections.abc import Iterator
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from robopolicy.attention import attention, chunked

T, S, D, V = 149, 170, 4, 3
MASKS = {"no mask": None, "some keys": np.arange(S) % 5 != 1, "no key": np.zeros(S, bool)}


def results(q, k, v, mask):
    """Attention, ranks, row sums up to the row's scale, and the derivatives of attention."""
    att = attention("softmax")
    pull = jax.vjp(lambda q, k, v: att.apply((), q, k, v, mask), q, k, v)[1]
    weights = jnp.cos(jnp.arange(T * V, dtype=jnp.float32)).reshape(T, V)
    return (
        att.apply((), q, k, v, mask),
        att.rank((), q, k, mask),
        att.denominators((), q, k, mask),
        pull(weights),
    )


def sizes(jaxpr) -> Iterator[int]:
    for equation in jaxpr.eqns:
        yield from (prod(out.aval.shape) for out in equation.outvars)
        for inner in jaxprs_in_params(equation.params):
            yield from sizes(inner)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_chunks_change_nothing(mask, monkeypatch):
    q, k, v = (jax.random.normal(jax.random.key(n), (n, w)) for n, w in ((T, D), (S, D), (S + 1, V)))
    whole = results(q, k, v[:S], mask)
    monkeypatch.setattr(chunked, "BUDGET", 1)  # chunks have 50 rows, the last one with padding
    monkeypatch.setattr(chunked, "CHUNK", 1)
    for found, expected in zip(
        jax.tree.leaves(results(q, k, v[:S], mask)), jax.tree.leaves(whole), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    jaxpr = jax.make_jaxpr(lambda *tokens: results(*tokens, mask))(q, k, v[:S]).jaxpr
    assert max(sizes(jaxpr)) < T * S / 2


def test_a_gpu_computes_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(chunked, "BUDGET", 1)
    tokens = jnp.ones((T, D)), jnp.ones((S, D)), jnp.ones((S, V))
    assert max(sizes(jax.make_jaxpr(lambda *x: attention("softmax").apply((), *x))(*tokens).jaxpr)) == T * S
