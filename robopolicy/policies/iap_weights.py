"""The trainable part of an Implicit Attention Policy."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

from robopolicy.policies.foothold_scores import Question, Scores
from robopolicy.policies.iap_config import CHANNELS, HEADS, IAPConfig
from robopolicy.policies.iap_parts import Camera, Reader, View
from robopolicy.policies.memories import memory_of


class Look(nnx.Module):
    """The projections of one camera's tokens: pixels, two numbers for the place, and a one."""

    def __init__(self, config: IAPConfig, camera: Camera, rngs: nnx.Rngs) -> None:
        width = config.patch**2 * camera.channels + 3
        linear = partial(nnx.Linear, width, config.head_dim, use_bias=False, rngs=rngs)
        spread = nnx.initializers.normal(config.spread)
        self.query = linear(kernel_init=spread)
        self.key = linear(kernel_init=spread)
        if camera.reference:
            self._look_for_gaps(config, rngs)
        if config.variant == "trans":
            self.value = linear()

    def _look_for_gaps(self, config: IAPConfig, rngs: nnx.Rngs) -> None:
        """Start with keys of deep tokens along a direction that all queries share, and level ones against it.

        With random projections only some seeds see the gaps.
        """
        direction = jax.random.normal(rngs.params(), (config.head_dim,))
        direction = direction / jnp.linalg.norm(direction)
        pixels = config.patch**2
        self.query.kernel[...] = self.query.kernel[...].at[-1].add(direction)
        tilt = jnp.zeros(pixels + 3).at[:pixels].set(2.0 / pixels).at[-1].set(-1.0)
        self.key.kernel[...] = self.key.kernel[...] + tilt[:, None] * direction


class Convolutions(nnx.Module):
    """Parts [rows, columns, channels] of images to few rows and columns with more channels."""

    def __init__(self, config: IAPConfig, view: View, rngs: nnx.Rngs) -> None:
        count = config.convolutions(view)
        widths = [config.camera(view.camera).channels, CHANNELS, *(count - 1) * [2 * CHANNELS]]
        self.layers = nnx.List(
            [nnx.Conv(*sizes, kernel_size=(3, 3), strides=2, rngs=rngs) for sizes in pairwise(widths)]
        )

    def __call__(self, parts: Array) -> Array:
        for layer in self.layers:
            parts = jax.nn.relu(layer(parts))
        return parts


class Weights(nnx.Module):
    """The trainable part of one reader."""

    def __init__(self, config: IAPConfig, reader: Reader, rngs: nnx.Rngs) -> None:
        output = reader.outputs[0]
        width = config.encoded(reader) + len(output.inputs)
        if config.recall_of(reader):
            self.memory = memory_of(config, reader, rngs)
        elif config.asks and config.views_of(reader):
            self.question = Question(config, reader.views[0], rngs)
        elif config.ranks:
            self.looks = nnx.Dict(
                {
                    view.camera: Look(config, config.camera(view.camera), rngs)
                    for view in config.views_of(reader)
                }
            )
        choice = config.choice(reader)
        if config.looks_up(reader):
            self.foothold = Scores(config, config.width(reader.views[0]), rngs)
        elif config.sees and config.encoder == "relu":
            self.pixels = nnx.Dict(
                {
                    view.camera: nnx.Linear(config.camera(view.camera).channels, CHANNELS, rngs=rngs)
                    for view in config.views_of(reader)
                }
            )
        elif config.sees and config.encoder == "cnn":
            self.convolutions = nnx.Dict(
                {view.camera: Convolutions(config, view, rngs) for view in config.views_of(reader)}
            )
        if config.hidden:
            self.hidden = nnx.Linear(width, config.hidden, rngs=rngs)
            width = config.hidden
        is_choice = config.head == "choice"
        if choice:
            # Footholds far from the nominal landing start with a lower score.
            lead = jnp.array([0.0] * choice.actions + [-config.calm * is_choice] * choice.actions)
        else:
            lead = jnp.zeros(HEADS[config.head]).at[0].set(config.calm * is_choice)
            lead = jnp.tile(lead, len(output.actions))
        self.head = nnx.Linear(
            width, len(lead), kernel_init=nnx.initializers.zeros, bias_init=lambda *_: lead, rngs=rngs
        )


def weights_of(config: IAPConfig, rngs: nnx.Rngs) -> Any:
    """The trainable part of every reader, by name."""
    return nnx.Dict({reader.name: Weights(config, reader, rngs) for reader in config.readers})
