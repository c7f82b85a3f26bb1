"""Softmax-kernel attention from random features, linear in tokens.

    attention("angular_hybrid(m=8, n=8)")      init, apply, rank, causal; "softmax" is the exact one
    feature_map("angular_hybrid(m=8, n=8)")    the FeatureMap it is made of
    kernel_estimate(map, features, x, y)       the kernel it estimates, exp(x.y), unnormalised
    fit(map, key, x, y)                        features drawn for data like x and y
    canonical(spec)                            the one way to write a spec

JAX only. Everything takes one head without a batch; `jax.vmap` does the rest.
"""

from robopolicy.attention.algebra import kernel_estimate
from robopolicy.attention.base import Attention, Block, FeatureMap, ScaledFeatures, fit
from robopolicy.attention.catalogue import attention, canonical, feature_map

__all__ = [
    "Attention",
    "Block",
    "FeatureMap",
    "ScaledFeatures",
    "attention",
    "canonical",
    "feature_map",
    "fit",
    "kernel_estimate",
]
