"""Memory traffic and peak memory against counts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from robopolicy.costs.flops import count

X = jax.ShapeDtypeStruct((10, 8), jnp.float32)  # 320 bytes
W = jax.ShapeDtypeStruct((8, 16), jnp.float32)  # 512
INDEX = jax.ShapeDtypeStruct((), jnp.int32)  # 4
BYTE = jax.ShapeDtypeStruct((10, 8), jnp.uint8)  # 80


def traffic(function, *shapes):
    return count(function, *shapes).summary()["traffic_bytes"]


def peak(function, *shapes):
    return count(function, *shapes).peak_bytes


def test_a_product_equals_xlas_count():
    def dense(x, w):
        return x @ w

    by_xla = jax.jit(dense).lower(X, W).compile().cost_analysis()["bytes accessed"]
    assert traffic(dense, X, W) == 320 + 512 + 640 == by_xla


@pytest.mark.parametrize(
    ("function", "by_hand"),
    [
        (lambda x: jnp.sin(x) + 1, 4 * 320),  # nothing is fused, and literals are not read
        (lambda x: x * x, 2 * 320),  # one array, read once
        (lambda x: jnp.sum(x), 320 + 4),
        (lambda x: x.reshape(8, 10), 0),  # a view
        (lambda x: x[None], 2 * 320),  # broadcast
        (lambda x: x.T, 2 * 320),
        (lambda x: x > 0, 320 + 80),
        (lambda x: jax.lax.slice(x, (2, 0), (4, 8)), 64 + 64),  # only the slice is read
        (lambda x: jax.lax.concatenate([x, x], 0), 320 + 640),
        (lambda x: jax.lax.top_k(x, 2), 320 + 80 + 80),
    ],
)
def test_a_primitive_reads_its_operands_and_writes_its_results(function, by_hand):
    assert traffic(function, X) == by_hand


def test_bytes_are_counted_by_width():
    assert traffic(lambda x: x.astype(jnp.float32), BYTE) == 80 + 320
    assert peak(lambda x: x.astype(jnp.float32), BYTE) == 80 + 320


def test_a_slice_reads_its_index_and_its_elements():
    place = jax.ShapeDtypeStruct((), jnp.uint32)  # of no sign, so that it counts from the front
    first = np.uint32(0)
    assert traffic(lambda x, i: jax.lax.dynamic_slice(x, (i, first), (1, 8)), X, place) == 2 * 32 + 4
    places = jax.ShapeDtypeStruct((2,), jnp.int32)  # which get one axis more
    assert traffic(lambda x, i: jnp.take(x, i, axis=0, mode="clip"), X, places) == 2 * 8 + 2 * 64 + 8
    update = jax.ShapeDtypeStruct((1, 8), jnp.float32)
    put = count(lambda x, u: jax.lax.dynamic_update_slice(x, u, (2, 0)), X, update)
    assert put.summary()["traffic_bytes"] == 320 + 32 + 320


def test_a_loop_counts_its_body_and_its_slices():
    def summed(x):
        return jax.lax.scan(lambda carry, row: (carry + row, jnp.sin(row)), jnp.zeros(8), x)

    # Zeros; ten times an addition and a sine of rows; ten rows read and ten stacked.
    assert traffic(summed, X) == 32 + 10 * (96 + 64) + 2 * 320 + 2 * 320
    # Argument, zeros, results; in a pass a row, the new carry and the sine of the row.
    assert peak(summed, X) == 320 + 32 + (32 + 320) + 32 + 32 + 32


def test_a_conditional_counts_traffic_of_its_costliest_branch_and_memory_of_its_largest():
    def costly(x):
        return jnp.sin(jnp.sin(jnp.sin(x)))

    def large(x):
        return jnp.concatenate([x, x, x])[:10]

    def either(x, i):
        return jax.lax.switch(i, [costly, large], x)

    # The index is read and clamped; it is alive together with its clamped copy.
    assert traffic(either, X, INDEX) == 6 * 320 + 8
    assert peak(either, X, INDEX) == 320 + 4 + 4 + 3 * 320 + 320


def test_among_branches_with_equal_flops_the_one_with_more_traffic_counts():
    def either(x, i):
        return jax.lax.cond(i, lambda x: x, lambda x: x.T.T.T.T, x)

    yes = jax.ShapeDtypeStruct((), jnp.bool_)
    assert traffic(either, X, yes) >= 4 * 640


def test_arrays_live_until_they_are_last_read():
    assert peak(lambda x: x, X) == 320
    assert peak(jnp.sin, X) == 640
    # The first sine is dead when the third is created.
    assert peak(lambda x: jnp.sin(jnp.sin(jnp.sin(x))), X) == 3 * 320
    # The sine lives until the sum reads it.
    assert peak(lambda x: jnp.sin(x) + jnp.cos(jnp.cos(jnp.cos(x))), X) == 4 * 320
    # A view keeps its array alive, and needs no memory itself.
    assert peak(lambda x: jnp.sin(x).reshape(-1), X) == 640

    def viewed(x):
        view, other = jnp.sin(x).reshape(-1), jnp.sum(jnp.cos(jnp.cos(x)))
        return view[:4] + other

    assert peak(viewed, X) == 4 * 320
    # An unused argument counts.
    assert peak(lambda x, w: jnp.sin(x), X, W) == 640 + 512


def test_the_memory_of_a_call_adds_to_the_memory_around_it():
    inner = jax.jit(lambda x: jnp.sum(jnp.sin(x) * jnp.cos(x)))

    def outer(x):
        alive = jnp.exp(x)
        return alive + inner(x)

    assert peak(outer, X) == 320 + 320 + 3 * 320
    assert traffic(outer, X) == 640 + (640 + 640 + 960 + 324) + 644


def test_constants_are_counted_once():
    table = np.arange(80, dtype=np.float32).reshape(10, 8)
    inner = jax.jit(lambda x: x * table)
    assert peak(lambda x: inner(inner(x)), X) == 320 + 320 + 2 * 320
    assert peak(lambda x: x + jnp.asarray(table), X) == 3 * 320
    looped = jax.lax.scan
    assert peak(lambda x: looped(lambda c, _: (c + table, None), x, length=3)[0], X) == 4 * 320


def test_the_peak_of_attention_holds_two_matrices_of_weights():
    def attended(x):
        weights = jax.nn.softmax(x @ x.T)
        return weights @ x

    weights = 4 * 10 * 10
    # Differences, their exponentials and sums, the quotient: two matrices at any time, and a column.
    assert peak(attended, X) >= 320 + 2 * weights
