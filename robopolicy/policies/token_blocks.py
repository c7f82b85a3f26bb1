"""The blocks of a Vision-Performer: tokens read each other, then each passes an MLP."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from robopolicy.policies.base import side_by_side
from robopolicy.policies.multihead import MultiHeadAttention
from robopolicy.policies.vision_performer_config import NORMS, VisionPerformerConfig

See = Callable[[str, Array], None]  # receives the name and the output of a layer


def ignore(name: str, output: Array) -> None:
    """See nothing."""


def depthwise(images: Array, kernel: Array, *arguments: Any, **settings: Any) -> Array:
    """The convolution of each channel by its own kernel [rows, columns, 1, C], with zeros beyond the edges.

    On a CPU, a training step of a CNN with XLA's convolution takes 4.7 times as long as with these products.

    Args:
      images: [B, H, W, C].
      arguments, settings: of `jax.lax.conv_general_dilated`, all at their defaults for such a convolution.
    """
    height, width = images.shape[1:3]
    rows, columns = kernel.shape[:2]
    edges = ((n // 2, n - 1 - n // 2) for n in (rows, columns))
    padded = jnp.pad(images, ((0, 0), *edges, (0, 0)))
    shifted = (
        padded[:, row : row + height, column : column + width] * kernel[row, column]
        for row in range(rows)
        for column in range(columns)
    )
    return reduce(jnp.add, shifted)


class Neighbours(nnx.Module):
    """A separable convolution of 3 x 3 tokens of each image, with relu: [L, width] to [L, width]."""

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs, dtype: str) -> None:
        self.grids = tuple(config.grid(image) for image in config.images)
        width = config.width
        # In float32, since sums of nine numbers in bfloat16 would lose digits.
        self.depthwise = nnx.Conv(
            width,
            width,
            (3, 3),
            feature_group_count=width,
            use_bias=False,
            conv_general_dilated=depthwise,
            rngs=rngs,
        )
        self.pointwise = nnx.Linear(width, width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: Array) -> Array:
        ends = list(accumulate(map(prod, self.grids)))
        each = [
            self.depthwise(part.reshape(*grid, -1)).reshape(part.shape)
            for part, grid in zip(jnp.split(tokens, ends[:-1]), self.grids, strict=True)
        ]
        return jax.nn.relu(self.pointwise(side_by_side(each)))


class Block(nnx.Module):
    """Attention and an MLP, each on normalised tokens and added to them (pre-norm).

    In place of attention, controls have a convolution or nothing.
    """

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs, dtype: str) -> None:
        self.mixes = config.attends or config.encoder == "cnn"
        if self.mixes:
            self.attention_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.attention: Any  # what mixes tokens
        if config.attends:
            norm = NORMS[config.qk_norm]
            self.attention = MultiHeadAttention(
                config.attention, config.width, config.heads, rngs=rngs, norm_fn=norm, dtype=dtype
            )
        elif self.mixes:
            self.attention = Neighbours(config, rngs, dtype)
        self.mlp_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.expand = nnx.Linear(config.width, config.mlp, dtype=dtype, rngs=rngs)
        self.contract = nnx.Linear(config.mlp, config.width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: Array, see: See = ignore) -> Array:
        if self.mixes:
            with jax.named_scope("projections"):
                mixed = self.attention(self.attention_norm(tokens))
            see("attention", mixed)
        with jax.named_scope("encoder"):
            if self.mixes:
                tokens = tokens + mixed
            output = self.contract(jax.nn.relu(self.expand(self.mlp_norm(tokens))))
            see("mlp", output)
            return tokens + output
