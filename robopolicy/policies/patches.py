"""Images as tokens: cut into patches, put together again, and where each token lies."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray


def cut(image: Array, patch: int) -> Array:
    """An image [H, W] or [H, W, C] as tokens [L, patch * patch * C], row by row."""
    rows, columns, channels = image.shape[0] // patch, image.shape[1] // patch, image.shape[2:]
    split = image.reshape(rows, patch, columns, patch, *channels)
    order = (0, 2, 1, 3, 4)[: split.ndim]
    return split.transpose(order).reshape(rows * columns, -1)


def joined(tokens: Array, shape: tuple[int, ...], patch: int) -> Array:
    """The image of `shape` that `cut` made `tokens` of."""
    split = tokens.reshape(shape[0] // patch, shape[1] // patch, patch, patch, *shape[2:])
    order = (0, 2, 1, 3, 4)[: split.ndim]
    return split.transpose(order).reshape(shape)


def colours(tokens: Array) -> Array:
    """Bytes as numbers from -1 to 1."""
    return tokens.astype(jnp.float32) * (2.0 / 255.0) - 1.0


def places(grid: tuple[int, int]) -> NDArray[np.float32]:
    """Row and column of every token, [L, 2], from -1 (top, left) to 1 (bottom, right)."""
    centres = [(2.0 * np.arange(count) + 1.0) / count - 1.0 for count in grid]
    return np.stack(np.meshgrid(*centres, indexing="ij"), axis=-1).reshape(-1, 2).astype(np.float32)
