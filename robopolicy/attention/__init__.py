"""Softmax-kernel attention from random features, linear in tokens.

    attention("angular_hybrid(m=8, n=8)")      init, apply, rank, causal; "softmax" is exact
    feature_map("angular_hybrid(m=8, n=8)")    its FeatureMap
    kernel_estimate(map, features, x, y)       the estimated kernel, exp(x.y), unnormalised
    fit(map, key, x, y)                        features drawn for data like x and y
    canonical(spec)                            the canonical form of a spec
    dot_product_attention(..., mechanism=spec) jax.nn.dot_product_attention with any mechanism
    attention_fn(spec)                         the same for flax's MultiHeadAttention
    streaming(spec)                            attention as a memory: init, update, read

No flax. All but `dot_product_attention` and `attention_fn` are for one head without a batch; `jax.vmap`
adds both.
"""

from robopolicy.attention.algebra import kernel_estimate
from robopolicy.attention.base import Attention, Block, FeatureMap, ScaledFeatures, fit
from robopolicy.attention.catalogue import attention, canonical, feature_map
from robopolicy.attention.drop_in import attention_fn, dot_product_attention
from robopolicy.attention.memory import Memory, streaming

__all__ = [
    "Attention",
    "Block",
    "FeatureMap",
    "Memory",
    "ScaledFeatures",
    "attention",
    "attention_fn",
    "canonical",
    "dot_product_attention",
    "feature_map",
    "fit",
    "kernel_estimate",
    "streaming",
]
