"""Attention for models outside this package, in the layout of `jax.nn.dot_product_attention`.

Shape letters are those of JAX: B batch, T queries, S keys, N query heads, K key heads (K divides N), H head
width. V is the width of values. All heads and the whole batch share one draw of random features.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.attention.base import Features
from robopolicy.attention.catalogue import attention, canonical
from robopolicy.attention.softmax import softmax_of_pairs
from robopolicy.settings import check_count

LAST_SEED = 2**32 - 1


def dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    *,
    mechanism: str,
    features: Features | None = None,
    seed: int = 0,
    scale: float | Array | None = None,
    is_causal: bool = False,
    query_seq_lengths: Array | None = None,
    key_value_seq_lengths: Array | None = None,
) -> Array:
    """`jax.nn.dot_product_attention` with any mechanism in place of the exact softmax(scale q.k) v.

    Linear mechanisms never compute the matrix [T, S]. They accept `is_causal` and masks of keys, whose third
    axis has length 1, and refuse masks and biases of pairs. `softmax` accepts all. A query without any key
    gets 0, where JAX averages all values.

    Args:
      query: [B, T, N, H], or [T, N, H] without a batch.
      key: [B, S, K, H] or [S, K, H].
      value: [B, S, K, V] or [S, K, V].
      bias: added to the scaled logits, broadcastable to [B, N, T, S]; for `softmax` only.
      mask: bool, broadcastable to [B, N, T, S], False where a query must not attend to a key; [B, N, 1, S]
        for linear mechanisms.
      mechanism: a spec, such as "positive(m=256)" or "softmax".
      features: from `init` or `fit` of `attention(mechanism)`, for width H; None draws them from `seed`.
      seed: of the draw, from 0 to 2^32 - 1; one seed and width always give the same features.
      scale: of the logits; None is 1/sqrt(H).
      is_causal: whether query i attends to keys 0 to i only; needs T = S.
      query_seq_lengths: int [B]; later queries may be anything, and their results are 0.
      key_value_seq_lengths: int [B]; later keys are masked.

    Returns:
      [B, T, N, V] or [T, N, V] of the dtype of `query`; the mechanism computes in float32 or wider.

    Raises ValueError for shapes and features that do not fit, a seed out of range, and options that the
    mechanism does not support.
    """
    spec, query = canonical(mechanism), jnp.asarray(query)
    check_count("seed", seed, 0, LAST_SEED)
    q, k, v = (_batched(name, a) for name, a in (("query", query), ("key", key), ("value", value)))
    if k.shape[:3] != v.shape[:3] or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"query, key and value have shapes {q.shape}, {k.shape} and {v.shape}: they must be "
            "[B, T, N, H], [B, S, K, H] and [B, S, K, V]"
        )
    (batch, tokens, heads, width), (keys, key_heads) = q.shape, k.shape[1:3]
    if not (heads and key_heads and width):
        raise ValueError(f"query has shape {q.shape} and key {k.shape}: heads and width must be 1 or more")
    if heads % key_heads:
        raise ValueError(f"query has {heads} heads and key has {key_heads}: key's must divide query's")
    if is_causal and tokens != keys:
        raise ValueError(f"is_causal is True: query has {tokens} tokens and key {keys}, they must be equal")
    mask = _of_pairs("mask", mask, (batch, heads, tokens, keys))
    bias = _of_pairs("bias", bias, (batch, heads, tokens, keys))
    if mask is not None and mask.dtype != jnp.bool_:
        raise ValueError(f"mask is {mask.dtype}: it must be bool")
    if key_value_seq_lengths is not None:
        present = _before("key_value_seq_lengths", key_value_seq_lengths, batch, keys)[:, None, None]
        mask = present if mask is None else mask & present
    valid = None
    if query_seq_lengths is not None:
        valid = _before("query_seq_lengths", query_seq_lengths, batch, tokens)[:, :, None, None]
        # Some mechanisms adapt to all queries, so padding repeats the queries of the row in turn.
        turns = jnp.arange(tokens) % jnp.maximum(jnp.asarray(query_seq_lengths), 1)[:, None]
        q = jnp.take_along_axis(jnp.where(valid, q, 0), turns[:, :, None, None], axis=1)

    drawn = drawn_features(spec, width, seed) if features is None else _checked(features, spec, width)
    dtype = jnp.promote_types(jnp.result_type(q, k, v), jnp.float32)
    factor = jnp.asarray(1 / width**0.5 if scale is None else scale, dtype)
    # The root of the scale each: estimates are best for queries and keys of similar lengths.
    size = jnp.abs(factor)
    root = jnp.sqrt(jnp.where(size > 0, size, 1.0))
    q, k, v = q.astype(dtype) * (factor / root), k.astype(dtype) * root, v.astype(dtype)
    q = q.reshape(batch, tokens, key_heads, heads // key_heads, width).transpose(0, 2, 3, 1, 4)
    k, v = k.swapaxes(1, 2), v.swapaxes(1, 2)
    if bias is not None or (mask is not None and mask.shape[2] > 1):
        result = _exact(spec, q, k, v, bias, mask, is_causal)
    else:
        one_head = attention(spec).causal if is_causal else attention(spec).apply
        of_keys = None if mask is None else mask[:, :, 0]
        result = _grouped(lambda *head: one_head(drawn, *head), q, k, v, of_keys)
    result = result.transpose(0, 3, 1, 2, 4).reshape(batch, tokens, heads, v.shape[-1])
    result = result if valid is None else jnp.where(valid, result, 0)
    return result.astype(query.dtype).reshape(*query.shape[:-1], v.shape[-1])


def attention_fn(
    spec: str, *, features: Features | None = None, seed: int = 0, is_causal: bool = False
) -> Callable[..., Array]:
    """The `attention_fn` of flax's `nnx.MultiHeadAttention` and `linen.MultiHeadDotProductAttention`.

    Use another seed for every layer, so that their errors are independent. Masks are those of
    `dot_product_attention`, of any dtype as in flax. Flax's own causal mask [..., T, T] is for `softmax`
    only; `is_causal` here does the same for all mechanisms.

    Args:
      spec: a mechanism, such as "positive(m=256)" or "softmax".
      features: from `init` or `fit` of `attention(spec)`, for the width of a head; None draws from `seed`.
      seed: of the draw.
      is_causal: whether every call is causal; linen has no such option for a call.

    Raises ValueError for anything but a spec and a seed. The function raises it for dropout while training,
    for `module` (to sow attention weights, which linear mechanisms never compute), for a pair of precisions,
    and like `dot_product_attention`.
    """
    spec, always_causal = canonical(spec), is_causal
    attention(spec)  # raises ValueError for numbers that the mechanism does not take
    check_count("seed", seed, 0, LAST_SEED)

    def attend(
        query: Array,
        key: Array,
        value: Array,
        bias: Array | None = None,
        mask: Array | None = None,
        *,
        broadcast_dropout: bool = True,
        dropout_rng: Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        module: Any = None,
        is_causal: bool = False,
    ) -> Array:
        if dropout_rate > 0 and not deterministic:
            raise ValueError(f"dropout_rate is {dropout_rate}: it must be 0, since {spec} drops no weights")
        if module is not None:
            kind = type(module).__name__  # its repr has many lines
            raise ValueError(f"module is of type {kind}: it must be None, since {spec} sows no weights")
        dtype = jnp.result_type(query, key, value) if dtype is None else dtype
        lead = query.shape[:-3]
        one = (prod(lead),) if lead else ()
        q, k, v = (a.astype(dtype).reshape(*one, *a.shape[-3:]) for a in (query, key, value))
        masked = None if mask is None else mask.astype(bool)
        with _precision(precision):
            result = dot_product_attention(
                *(q, k, v, _flat(bias, lead), _flat(masked, lead)),
                mechanism=spec,
                features=features,
                seed=seed,
                is_causal=is_causal or always_causal,
            )
        return result.reshape(*query.shape[:-1], value.shape[-1])

    return attend


@lru_cache(maxsize=256)
def drawn_features(spec: str, width: int, seed: int) -> Features:
    """The features of a seed, drawn once and as constants, even while JAX traces a program."""
    with jax.ensure_compile_time_eval():
        return attention(spec).init(jax.random.key(seed), width)


@lru_cache(maxsize=256)
def _expected_features(spec: str, width: int) -> Features:
    """The shapes of the features that `init` and `fit` draw."""
    return jax.eval_shape(lambda: attention(spec).init(jax.random.key(0), width))


def _checked(features: Features, spec: str, width: int) -> Features:
    """`features` in the structure of the mechanism's: a model may hold them in variables of flax."""
    leaves = jax.tree.leaves(features)
    wanted, structure = jax.tree.flatten(_expected_features(spec, width))
    if [jnp.shape(leaf) for leaf in leaves] != [leaf.shape for leaf in wanted]:
        raise ValueError(
            f"features are not those of {spec} for heads of width {width}: they must come from its `init` or "
            "`fit`"
        )
    return jax.tree.unflatten(structure, leaves)


def _exact(
    spec: str, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None, is_causal: bool
) -> Array:
    """Attention with a bias or a mask of pairs, heads as in `_grouped`."""
    if spec != "softmax":
        name, shape = ("mask", getattr(mask, "shape", None)) if bias is None else ("bias", bias.shape)
        raise ValueError(
            f"{name} has shape {shape}: {spec} takes only is_causal and masks [..., 1, {k.shape[2]}] of keys"
        )
    if is_causal:
        past = jnp.tril(jnp.ones((q.shape[3], k.shape[2]), bool))[None, None]
        mask = past if mask is None else mask & past
    return _grouped(softmax_of_pairs, q, k, v, bias, mask)


def _grouped(one_head: Callable[..., Array], q: Array, k: Array, v: Array, *pairs: Array | None) -> Array:
    """One head's function over q [B, K, G, T, H], k and v [B, K, S, ...] and arrays [1 or B, 1 or N, ...].

    Returns [B, K, G, T, V]. Heads of one group share the computations on their keys.
    """
    batch, key_heads, group = q.shape[:3]
    by_head = [a is not None and a.shape[1] > 1 for a in pairs]
    grouped = [
        None if a is None else jnp.broadcast_to(a, (batch, *a.shape[1:])).reshape(shape + a.shape[2:])
        for a, own in zip(pairs, by_head, strict=True)
        for shape in [(batch, key_heads, group) if own else (batch,)]
    ]
    inner = [0 if own else None for own in by_head]
    outer = [None if a is None else 0 for a in pairs]
    over_group = jax.vmap(one_head, (0, None, None, *inner))
    over_heads = jax.vmap(over_group, (0, 0, 0, *inner))
    return jax.vmap(over_heads, (0, 0, 0, *outer))(q, k, v, *grouped)


def _batched(name: str, array: Array) -> Array:
    array = jnp.asarray(array)
    if array.ndim not in (3, 4):
        raise ValueError(f"{name} has shape {array.shape}: it must be [batch, tokens, heads, width]")
    return array if array.ndim == 4 else array[None]


def _of_pairs(name: str, array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """[1 or B, 1 or N, 1 or T, S] of an array that broadcasts to `shape` [B, N, T, S]."""
    if array is None:
        return None
    array = jnp.asarray(array)
    four = array.reshape((1,) * (4 - array.ndim) + array.shape) if array.ndim <= 4 else array
    if four.ndim != 4 or any(a not in (1, b) for a, b in zip(four.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {array.shape}: it must broadcast to {shape}")
    return jnp.broadcast_to(four, (*four.shape[:3], shape[3]))


def _before(name: str, lengths: Array, batch: int, tokens: int) -> Array:
    """bool [B, tokens], True for the first `lengths` tokens of each row."""
    lengths = jnp.asarray(lengths)
    if lengths.shape != (batch,):
        raise ValueError(f"{name} has shape {lengths.shape}: it must be [{batch}], one length per row")
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise ValueError(f"{name} is {lengths.dtype}: it must be int")
    return jnp.arange(tokens) < lengths[:, None]


def _flat(array: Array | None, lead: tuple[int, ...]) -> Array | None:
    """An array that broadcasts to [*lead, X, Y, Z], with the axes of `lead` as one, if there are any."""
    if array is None or array.ndim <= 3 or not lead:
        return array
    return jnp.broadcast_to(array, lead + array.shape[-3:]).reshape(prod(lead), *array.shape[-3:])


def _precision(precision: Any) -> Any:
    """JAX's context for a precision: a name, a `jax.lax.Precision` or None.

    Raises ValueError for flax's pairs of precisions, which the context cannot hold.
    """
    if precision is None:
        return nullcontext()
    name = precision.name.lower() if isinstance(precision, jax.lax.Precision) else precision
    return jax.default_matmul_precision(name)
