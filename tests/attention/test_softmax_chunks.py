"""Exact softmax over many tokens, a few rows of weights at a time."""

from collections.abc import Iterator
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.attention import attention, chunked
from robopolicy.costs.memory import bodies

T, S, D, V = 149, 170, 4, 3
MASKS = {"no mask": None, "some keys": np.arange(S) % 5 != 1, "no key": np.zeros(S, bool)}


def results(q, k, v, mask):
    """Attention, ranks, row sums up to the row's scale, and derivatives of attention and ranks."""
    att = attention("softmax")
    attended, pull = jax.vjp(lambda *tokens: att.apply((), *tokens, mask), q, k, v)
    ranks, pull_ranks = jax.vjp(lambda *tokens: att.rank((), *tokens, mask), q, k)
    weights = jnp.cos(jnp.arange(T * V, dtype=jnp.float32))
    slopes = pull(weights.reshape(T, V)), pull_ranks(weights[:S])
    return attended, ranks, att.denominators((), q, k, mask), slopes


def sizes(jaxpr) -> Iterator[int]:
    for equation in jaxpr.eqns:
        yield from (prod(out.aval.shape) for out in equation.outvars)
        for inner in bodies(equation):
            yield from sizes(inner.jaxpr)


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


@pytest.mark.parametrize(
    ("tokens", "numbers", "chunk"),
    [(1024, 1024, None), (1025, 1024, 128), (64, 2**20, None), (65, 2**20, 64)],
)
def test_chunks_have_as_many_numbers_as_fit_in_a_cache(tokens, numbers, chunk):
    assert chunked.chunk_of(tokens, numbers) == chunk


@pytest.mark.parametrize(("tokens", "most", "size"), [(2500, 247, 125), (149, 64, 50), (7, 3, 3)])
def test_chunks_are_even_and_without_padding_where_a_divisor_is_near(tokens, most, size):
    found = []
    total = chunked.sum_over_chunks(
        lambda x, real: found.append(x.shape) or jnp.sum(jnp.where(real[:, None], x, 0)),
        jnp.ones((tokens, 1)),
        most,
    )
    assert set(found) == {(size, 1)}
    assert total == tokens
