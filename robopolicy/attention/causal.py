"""Causal attention in time linear in tokens: sums of features over the past, carried from chunk to chunk.

Within a chunk the weights are a matrix of pairs of tokens; the chunks before are one matrix [R, V]. Keys are
relative to the largest scale so far, never to a later one. So neither the result of a query nor its rounding
depends on later tokens.
"""

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import ScaledFeatures

CHUNK = 64


def causal_sums(queries: ScaledFeatures, keys: ScaledFeatures, values: Array, mask: Array | None) -> Array:
    """For every query i, sum over keys j <= i of (features_i . features_j) * values_j.

    Args:
      queries, keys: features of T tokens each.
      values: [T, V].
      mask: bool [T]; keys that are False weigh nothing.

    Returns:
      [T, V], each row on a positive scale of its own.
    """
    q, k, log_scale = queries.values, keys.values, keys.log_scale
    # Tokens may be narrower than features; a scan needs one dtype.
    dtype = jnp.result_type(q, k, log_scale, values)
    q, k, log_scale, values = (array.astype(dtype) for array in (q, k, log_scale, values))
    tokens = len(values)
    chunks = -(-tokens // CHUNK)
    scales = log_scale if mask is None else jnp.where(mask, log_scale, -jnp.inf)
    # The scale of a row cancels when it is normalised, so it needs no derivative.
    largest = jax.lax.cummax(jax.lax.stop_gradient(scales))

    def chunked(array: Array, filling: float = 0.0) -> Array:
        padding = ((0, chunks * CHUNK - tokens), *((0, 0),) * (array.ndim - 1))
        padded = jnp.pad(array, padding, constant_values=filling)
        return padded.reshape(chunks, CHUNK, *array.shape[1:])

    past = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))

    def step(carry: tuple[Array, Array], chunk: tuple[Array, ...]) -> tuple[tuple[Array, Array], Array]:
        state, scale = carry
        q, k, v, log_scale, so_far = chunk
        finite = jnp.where(jnp.isfinite(so_far), so_far, 0.0)
        weights = jnp.exp(jnp.where(past, log_scale - finite[:, None], -jnp.inf))
        here = (weights * (q @ k.T)) @ v
        result = here + jnp.exp(scale - finite)[:, None] * (q @ state)
        share = jnp.exp(log_scale - finite[-1])
        state = jnp.exp(scale - finite[-1]) * state + (share[:, None] * k).T @ v
        return (state, so_far[-1]), result

    start = (jnp.zeros((k.shape[1], values.shape[1]), dtype), jnp.full((), -jnp.inf, dtype))
    # Padding repeats the last scale, so that it changes none.
    ends = chunked(largest, -jnp.inf)
    ends = jax.lax.cummax(ends.reshape(-1)).reshape(ends.shape)
    inputs = (chunked(q), chunked(k), chunked(values), chunked(scales, -jnp.inf), ends)
    _, results = jax.lax.scan(step, start, inputs)
    return results.reshape(-1, values.shape[1])[:tokens]
