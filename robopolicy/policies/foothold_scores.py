"""Scores of footholds by what a camera shows there: read from its pixels, or by attention that legs query."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from robopolicy.policies.base import Observation
from robopolicy.policies.controls import PLAIN_ENCODERS
from robopolicy.policies.footholds import Footholds, beside, between_pixels
from robopolicy.policies.iap_config import CHANNELS, IAPConfig
from robopolicy.policies.iap_parts import Output, Reader, View
from robopolicy.policies.multihead import unit

WAVES = 1.5  # of the slowest sine of a place, over twice the longer side of an image
SHARPNESS = 2.5  # length of the first queries and keys


class Scores(nnx.Module):
    """Scores of footholds from what lies at them and beside them: a grid [R, S, C] of `width` C to [F]."""

    def __init__(self, config: IAPConfig, width: int, rngs: nnx.Rngs) -> None:
        self.encoder = config.encoder if config.encoder in PLAIN_ENCODERS else "linear"
        if self.encoder != "linear":
            self.places = nnx.Linear(width * (9 if self.encoder == "cnn" else 1), CHANNELS, rngs=rngs)
            width = CHANNELS
        self.score = nnx.Linear(9 * width, 1, use_bias=False, kernel_init=nnx.initializers.zeros, rngs=rngs)

    def __call__(self, grid: Array) -> Array:
        if self.encoder != "linear":
            grid = jax.nn.relu(self.places(beside(grid) if self.encoder == "cnn" else grid))
        return self.score(beside(grid)).ravel()


class Question(nnx.Module):
    """Queries of places and keys of tokens, so that attention reads an image at these places.

    The kernel of places is one of distance, whose width `sharpness` sets. What a token shows moves its key.
    """

    def __init__(self, config: IAPConfig, view: View, rngs: nnx.Rngs) -> None:
        channels, zeros = config.camera(view.camera).channels, nnx.initializers.zeros
        width = config.head_dim - config.head_dim // 4  # all but what changes its sign in a mirror image
        self.key = nnx.Linear(channels, width, use_bias=False, kernel_init=zeros, rngs=rngs)
        self.sharpness = nnx.Param(jnp.log(jnp.float32(SHARPNESS)))


def at_pixels(
    config: IAPConfig,
    reader: Reader,
    choice: Footholds,
    weights: Scores,
    observation: Observation,
    image: Array,
) -> Array:
    """Scores of the footholds of each output by `image` [H, W, C], [outputs, F]."""
    each = []
    for output, place in zip(reader.outputs, landings(config, reader, choice, observation), strict=True):
        at = choice.seen_at((image.shape[0], image.shape[1]), *place, config.border, output.mirrored)
        each.append(weights(between_pixels(image, *at)))
    return jnp.stack(each)


def asked(
    config: IAPConfig,
    reader: Reader,
    choice: Footholds,
    question: Question,
    observation: Observation,
    shown: Array,
) -> tuple[Array, Array]:
    """Queries [outputs * R * S, D] of all places that are read, and keys [L, D] of tokens.

    shown: what each token shows, [L, C].
    """
    (view,) = reader.views
    camera, patch = config.camera(view.camera), config.patch
    size = camera.rows, camera.columns
    code = partial(_code, config.head_dim, np.pi * WAVES / max(size), (camera.columns - 1) / 2)
    rows, columns = (patch * np.arange(count) + (patch - 1) / 2 for count in config.grid(view))
    shift = jnp.pad(question.key(shown), ((0, 0), (0, config.head_dim // 4)))
    keys = code(rows[:, None], columns).reshape(-1, config.head_dim) + shift
    queries = []
    for output, place in zip(reader.outputs, landings(config, reader, choice, observation), strict=True):
        at = choice.seen_at(size, *place, config.border, output.mirrored)
        queries.append(code(*at).reshape(-1, config.head_dim))
    length = jnp.exp(question.sharpness[...])
    return length * jnp.concatenate(queries), length * unit(keys)


def scored(config: IAPConfig, reader: Reader, choice: Footholds, weights: Scores, grids: Array) -> Array:
    """Scores [outputs, F] of the footholds of each output, by what was read around them in `grids`.

    grids: [outputs * R * S, C].
    """
    shape = [count + 2 * config.border for count in choice.counts]
    return jnp.stack([weights(grid) for grid in grids.reshape(len(reader.outputs), *shape, -1)])


def entry(config: IAPConfig, observation: Observation, name: str) -> Array:
    """The value [] of the entry `name` of a vector."""
    (vector,) = (vector for vector in config.vectors if name in vector.entries)
    return observation[vector.name][vector.entries.index(name)]


def landings(
    config: IAPConfig, reader: Reader, choice: Footholds, observation: Observation
) -> list[tuple[Any, Any]]:
    """How far ahead and to the left of its foot's place each output lands by default (m)."""

    def value(output: Output, names: tuple[str, ...]) -> Any:
        if not names:
            return np.float32(0)
        return entry(config, observation, names[reader.outputs.index(output)])

    ahead = [value(output, choice.nominal) for output in reader.outputs]
    left = [value(output, choice.aside) for output in reader.outputs]
    signs = [np.float32(-1 if output.mirrored else 1) for output in reader.outputs]
    return [(x, sign * y) for x, y, sign in zip(ahead, left, signs, strict=True)]


def _code(dim: int, slowest: float, middle: float, row: Any, column: Any) -> Array:
    """Places in an image as vectors of length 1, [..., dim]: sines and cosines of waves.

    slowest: wave, radians for each pixel. In a mirror image, the last quarter changes its sign.
    """
    waves = slowest * np.arange(1, dim // 4 + 1, dtype=np.float32)
    row, column = jnp.asarray(row, jnp.float32), jnp.asarray(column - middle, jnp.float32)
    row, column = (place[..., None] * waves for place in jnp.broadcast_arrays(row, column))
    parts = [jnp.cos(row), jnp.cos(column), jnp.sin(row), jnp.sin(column)]
    return jnp.concatenate(parts, axis=-1) * float((dim / 2) ** -0.5)
