"""Patches of images as tokens: their sizes, their pixels, and their places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray


def divisors(sides: Iterable[int]) -> list[int]:
    """All patches, in pixels, that divide these sides of images; none without sides."""
    lengths = list(sides)
    return [
        size for size in range(1, min(lengths, default=0) + 1) if not any(side % size for side in lengths)
    ]


def check_patch(patch: int, rows: int, columns: int, image: str) -> None:
    """Raise ValueError unless `patch` divides both sides (pixels) of the image of that name."""
    if rows % patch or columns % patch:
        raise ValueError(f"patch is {patch}: it must divide the {rows} rows and {columns} columns of {image}")


def cut(image: Array, patch: int) -> Array:
    """An image [H, W] or [H, W, C] as tokens [L, patch * patch * C], row by row."""
    rows, columns, channels = image.shape[0] // patch, image.shape[1] // patch, image.shape[2:]
    split = image.reshape(rows, patch, columns, patch, *channels)
    order = (0, 2, 1, 3, 4)[: split.ndim]
    return split.transpose(order).reshape(rows * columns, -1)


def stacked(images: NDArray[Any], patch: int) -> NDArray[Any]:
    """Images [..., H, W, C] with their patches one below the other, [..., H * W / patch, patch, C].

    `cut` makes the same tokens of both, of this without moving a number. Here NumPy moves them in a tenth of
    XLA's time.
    """
    *batch, height, width, channels = images.shape
    split = images.reshape(*batch, height // patch, patch, width // patch, patch * channels)
    return split.swapaxes(-3, -2).reshape(*batch, -1, patch, channels)


def joined(tokens: Array, shape: tuple[int, ...], patch: int) -> Array:
    """The image of `shape` whose tokens `cut` returned."""
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
