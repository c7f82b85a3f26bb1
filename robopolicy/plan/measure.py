"""Measures the errors of kernel estimates, to compare with predictions."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention import feature_map
from robopolicy.attention.base import Features
from robopolicy.plan.pairs import in_width, sample_pairs

DRAWS = 4000
PAIRS = 48 * 24**2  # of queries and keys that are compared, in all heads together


def measured_error(spec: str, heads: Sequence[tuple[Any, Any]], dim: int, seed: int = 0) -> float:
    """The error of a mechanism on recorded queries and keys, as in errors.py, over draws of features.

    Args:
      spec: the mechanism.
      heads: queries [T, D] and keys [S, D] of one frame and head each.
      dim: width of the mechanism's queries and keys. If it is not D, the pairs are of that width, with the
        same lengths and angles.
      seed: of the draws and of the sampled pairs.
    """
    # Images of other sizes have other numbers of tokens.
    groups: dict[tuple[int, ...], list[tuple[Any, Any]]] = {}
    for q, k in heads:
        groups.setdefault((len(q), len(k)), []).append((q, k))
    squares = [len(group) * _mean_square(spec, group, dim, seed) for group in groups.values()]
    return float(np.sqrt(sum(squares) / len(heads)))


def _mean_square(spec: str, heads: Sequence[tuple[Any, Any]], dim: int, seed: int) -> float:
    """The mean squared error on heads with equal numbers of queries, and of keys."""
    mechanism = feature_map(spec)
    rng = np.random.default_rng(seed)
    if dim == np.shape(heads[0][0])[1]:
        compare = _all_pairs
        each = max(2, math.isqrt(PAIRS // len(heads)))
        q, k = (jnp.asarray(np.stack(a), jnp.float32) for a in zip(*heads, strict=True))
        rows, columns = (jnp.asarray([rng.permutation(a.shape[1])[:each] for _ in heads]) for a in (q, k))
    else:
        compare = _row_pairs
        pairs = in_width(sample_pairs(heads, seed), dim, seed)
        q, k = (jnp.asarray(a[None], jnp.float32) for a in (pairs.x, pairs.y))
        rows = columns = jnp.arange(len(pairs.x))[None]

    @jax.jit
    def error(features: Features) -> Array:
        def of_head(q: Array, k: Array, rows: Array, columns: Array) -> Array:
            adapted = mechanism.adapt(features, q, k, None)
            queries, keys = mechanism.apply_q(adapted, q[rows]), mechanism.apply_k(adapted, k[columns])
            return jnp.mean(compare(queries, keys, q[rows], k[columns]))

        return jnp.mean(jax.vmap(of_head)(q, k, rows, columns))

    # Halton sequences call back into Python, which can deadlock compiled code with few threads.
    init = mechanism.init if "halton" in spec else jax.jit(mechanism.init, static_argnums=1)
    errors = [float(error(init(key, dim))) for key in jax.random.split(jax.random.key(seed), DRAWS)]
    return float(np.mean(errors))


def _all_pairs(queries: Any, keys: Any, q: Array, k: Array) -> Array:
    """Squared relative errors of all queries with all keys."""
    # The estimate and SM(q, k) may overflow where their ratio does not, so the exponents are subtracted.
    shift = queries.log_scale[:, None] + keys.log_scale[None, :] - q @ k.T
    return (queries.values @ keys.values.T * jnp.exp(shift) - 1) ** 2


def _row_pairs(queries: Any, keys: Any, q: Array, k: Array) -> Array:
    """Squared relative errors of each query with the key in the same row."""
    shift = queries.log_scale + keys.log_scale - jnp.sum(q * k, axis=1)
    return (jnp.sum(queries.values * keys.values, axis=1) * jnp.exp(shift) - 1) ** 2
