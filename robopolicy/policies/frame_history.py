"""A history of frames: tokens that read the patches of an image in the last steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from robopolicy.policies.patches import colours, cut


class FramePatches(nnx.Linear):
    """Patches of the last T frames of one image to tokens: a product over the numbers of all these frames.

    Of the kernel [T * P, width], the first P rows read the frame of this step, the next P that of the step
    before, and so on. A policy at work does not keep the frames. It keeps what they add to the tokens of
    the steps to come, [T - 1, L, width], as a filter in its transposed form does (Oppenheim and Schafer,
    Discrete-Time Signal Processing, Section 6.4): each frame is multiplied once by each block of the kernel.
    """

    def __init__(self, frames: int, patch: int, width: int, *, dtype: Any, rngs: nnx.Rngs) -> None:
        super().__init__(frames * 3 * patch**2, width, dtype=dtype, rngs=rngs)
        self.frames, self.patch = frames, patch

    def of_frames(self, images: Array) -> Array:
        """Tokens [L, width] of the frames [T, H, W, 3] uint8, this step's first; [H, W, 3] with T = 1."""
        if self.frames == 1:
            return self(colours(cut(images, self.patch)))
        pixels = jax.vmap(lambda image: cut(image, self.patch))(images)
        return self(colours(pixels.swapaxes(0, 1).reshape(pixels.shape[1], -1)))

    def of_next(self, image: Array, kept: Array, is_first: Array) -> tuple[Array, Array]:
        """Tokens [L, width] of an image [H, W, 3] uint8 after those before it, and what is kept of them all.

        `kept` [T - 1, L, width] has the earlier frames; if `is_first` [1], all of these were as this one.
        """
        pixels = colours(cut(image, self.patch))
        blocks = jnp.split(self.kernel[...], self.frames)
        shares = [pixels @ block for block in blocks]
        sums = [shares[-1]]
        for share in shares[-2:0:-1]:
            sums.insert(0, sums[0] + share)
        before = jnp.where(is_first, jnp.stack(sums), kept)
        later = [old + share for old, share in zip(before[1:], shares[1:], strict=False)]
        assert self.bias is not None
        return shares[0] + before[0] + self.bias[...], jnp.stack([*later, shares[-1]])
