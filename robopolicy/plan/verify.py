"""Measured errors of kernel estimates, to hold predictions against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention import feature_map
from robopolicy.attention.base import Features
from robopolicy.plan.pairs import in_width, recorded

DRAWS = 4000
PAIRS = 48 * 24**2  # of a query and a key that are compared, of all heads together


def measured(spec: str, heads: Sequence[tuple[Any, Any]], dim: int, seed: int = 0) -> float:
    """The error of a mechanism on recorded queries and keys: what errors.py predicts, over draws of features.

    Args:
      spec: the mechanism.
      heads: queries [T, D] and keys [S, D] of one frame and head each.
      dim: width that the mechanism works on. Another one than D takes pairs of tokens there that have the
        lengths and angles of these.
      seed: of the draws, and of what is compared.
    """
    mechanism = feature_map(spec)
    rng = np.random.default_rng(seed)
    if dim == np.shape(heads[0][0])[1]:
        compare = _every
        each = max(2, math.isqrt(PAIRS // len(heads)))
        q, k = (jnp.asarray(np.stack(a), jnp.float32) for a in zip(*heads, strict=True))
        rows, columns = (jnp.asarray([rng.permutation(a.shape[1])[:each] for _ in heads]) for a in (q, k))
    else:
        compare = _paired
        pairs = in_width(recorded(heads, seed), dim, seed)
        q, k = (jnp.asarray(a[None], jnp.float32) for a in (pairs.x, pairs.y))
        rows = columns = jnp.arange(len(pairs.x))[None]

    @jax.jit
    def error(features: Features) -> Array:
        def of_head(q: Array, k: Array, rows: Array, columns: Array) -> Array:
            adapted = mechanism.adapt(features, q, k, None)
            queries, keys = mechanism.apply_q(adapted, q[rows]), mechanism.apply_k(adapted, k[columns])
            return jnp.mean(compare(queries, keys, q[rows], k[columns]))

        return jnp.mean(jax.vmap(of_head)(q, k, rows, columns))

    # Halton sequences are drawn in Python, which compiled code of few threads may wait for in vain.
    init = mechanism.init if "halton" in spec else jax.jit(mechanism.init, static_argnums=1)
    found = [float(error(init(key, dim))) for key in jax.random.split(jax.random.key(seed), DRAWS)]
    return float(np.sqrt(np.mean(found)))


def _every(queries: Any, keys: Any, q: Array, k: Array) -> Array:
    """Squared relative errors of all queries with all keys."""
    # Over SM(q, k) in logarithms: both may be out of the range of numbers where their ratio is not.
    shift = queries.log_scale[:, None] + keys.log_scale[None, :] - q @ k.T
    return (queries.values @ keys.values.T * jnp.exp(shift) - 1) ** 2


def _paired(queries: Any, keys: Any, q: Array, k: Array) -> Array:
    """Squared relative errors of each query with the key in its row."""
    shift = queries.log_scale + keys.log_scale - jnp.sum(q * k, axis=1)
    return (jnp.sum(queries.values * keys.values, axis=1) * jnp.exp(shift) - 1) ** 2
