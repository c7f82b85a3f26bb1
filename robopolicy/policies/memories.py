"""Memories of a policy: legs choose among footholds by what a camera showed at these places before.

The memory of attention is kernel regression on a map of the ground. Each step writes what the tokens of a
camera show; keys are their places, by odometry, and queries are the places around footholds. `Map` and
`Recurrent` are its controls: a map by hand, and a state that is learned.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from robopolicy.attention.memory import streaming
from robopolicy.policies import top_view
from robopolicy.policies.base import Observation
from robopolicy.policies.foothold_scores import Scores, entry, landings, scored
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.iap_parts import Reader
from robopolicy.policies.recall import around, moved

SHORTEST, WAVES = 0.5, 4  # m, of the waves that code a place; the longest has WAVES times this
WIDTH = 4 * WAVES  # of keys and queries: sine and cosine of each wave, ahead and to the left
RADIUS = 2.0  # length of the first queries and keys: the kernel has a standard deviation of 8 cm
LEAST = 0.25  # of the weight of tokens that lie everywhere alike: with less, a place counts as not seen
CELL, CELLS = 0.04, (64, 32)  # m, side of a map's cell; cells ahead and to the left, then it begins anew
HIDDEN = 16  # numbers of the recurrent state of a leg


class _Memory(nnx.Module):
    """What all memories share: what the camera shows, and the scores of footholds."""

    def __init__(self, config: IAPConfig, reader: Reader) -> None:
        self.config, self.reader = config, reader

    @property
    def _tokens(self) -> tuple[int, int]:
        """Rows and columns of tokens of the camera."""
        camera, patch = self.config.camera(self._recall.camera), self.config.patch
        return camera.rows // patch, camera.columns // patch

    @property
    def _channels(self) -> int:
        return self.config.camera(self._recall.camera).channels

    @property
    def _recall(self) -> Any:
        return self.config.recall_of(self.reader)

    def _shown(self, tokens: Array) -> Array:
        """The mean [L, C] of the pixels of `tokens` [L, P]."""
        with jax.named_scope("projections"):
            return jnp.mean(tokens.reshape(len(tokens), self.config.patch**2, -1), axis=1)

    def _scored(self, weights: Scores, found: Array) -> Array:
        choice = self.config.choice(self.reader)
        assert choice is not None
        with jax.named_scope("encoder"):
            return scored(self.config, self.reader, choice, weights, found)


class OfPlaces(_Memory):
    """A memory whose reads are of places on the ground."""

    def _places(self, observation: Observation) -> tuple[Array, Array | None, Array]:
        """Places (m, since the start) of the tokens [L, 2], which of them are on the ground, and of what is
        read around the footholds of all outputs [outputs * R * S, 2]."""
        config, reader, choice = self.config, self.reader, self.config.choice(self.reader)
        assert choice is not None
        pose = self._pose(observation)
        places, is_below = self._recall.ground(*self._tokens)
        near = [
            around(choice, *place, config.border, output.mirrored)
            for output, place in zip(
                reader.outputs, landings(config, reader, choice, observation), strict=True
            )
        ]
        mask = None if is_below.all() else jnp.asarray(is_below)
        return moved(pose, places), mask, moved(pose, jnp.concatenate(near))

    def _pose(self, observation: Observation) -> Array:
        return jnp.stack([entry(self.config, observation, name) for name in self._recall.odometry])

    def around_robot(self, draw: Any, state: Any, observation: Observation) -> Array:
        """What is read at the places of a `top_view`, [rows, columns, C]."""
        shape, places = top_view.places()
        return self._read(draw, state, moved(self._pose(observation), places)).reshape(*shape, -1)

    def _read(self, draw: Any, state: Any, places: Array) -> Array:
        """What is remembered of `places` [N, 2] since the start, [N, C]."""
        raise NotImplementedError


class Attention(OfPlaces):
    """Attention over all that the camera showed. Its values are means of pixels: a read is linear in them, so
    that the weights of `Scores` learn what to make of them."""

    def __init__(self, config: IAPConfig, reader: Reader, rngs: nnx.Rngs) -> None:
        super().__init__(config, reader)
        self.radius = nnx.Param(jnp.log(jnp.float32(RADIUS)))  # sets the width of the kernel
        self.foothold = Scores(config, self._channels, rngs)
        is_exact = config.attention == "softmax"
        self.memory = streaming(
            config.attention, config.memory_decay, updates=config.memory_steps if is_exact else None
        )

    def start(self, draw: Any) -> Any:
        """The state in which nothing is written."""
        rows, columns = self._tokens
        return self.memory.init(draw, WIDTH, self._channels, rows * columns)

    def __call__(
        self, draw: Any, state: Any, tokens: Array, observation: Observation, inputs: Array
    ) -> tuple[Array, Any]:
        """Write `tokens` [L, P]. Returns scores of footholds, [outputs, F], and the state."""
        with jax.named_scope("projections"):
            seen, mask, asked = self._places(observation)
            keys = self._code(seen)
        shown = self._shown(tokens)
        with jax.named_scope("contraction"):
            state = self.memory.update(draw, state, keys, shown, mask)
        return self._scored(self.foothold, self._read(draw, state, asked)), state

    def queries(self, observation: Observation) -> Array:
        """What is asked around the footholds of all outputs, [T, WIDTH]."""
        return self._code(self._places(observation)[2])

    @property
    def least(self) -> Array:
        """The least mean weight of a read, []."""
        return LEAST * self._spread_out

    def _read(self, draw: Any, state: Any, places: Array) -> Array:
        with jax.named_scope("projections"):
            queries = self._code(places)
        with jax.named_scope("contraction"):
            found = self.memory.read(draw, state, queries, self.least)
            return jnp.clip(found, -1.0, 1.0)  # as all pixels; a mean of some is within their range

    @property
    def _spread_out(self) -> Array:
        """About the mean of the kernel over all places, the weight of tokens that lie everywhere alike.

        It takes the phases of the waves for independent, and so is too low: at RADIUS, 1.64 in place of 2.00.
        """
        waves = (
            jnp.exp(2 * self.radius[...]) / (2 * WAVES) * np.cos(np.pi / 4 * np.arange(8), dtype=np.float32)
        )
        return jnp.mean(jnp.exp(waves)) ** (2 * WAVES)

    def _code(self, places: Array) -> Array:
        """Places [N, 2] as vectors [N, WIDTH]: their kernel is one of distance."""
        waves = (2 * np.pi / (SHORTEST * WAVES) * np.arange(1, WAVES + 1)).astype(np.float32)
        phases = (places[:, :, None] * waves).reshape(len(places), -1)
        code = jnp.concatenate([jnp.cos(phases), jnp.sin(phases)], axis=1)
        return jnp.exp(self.radius[...]) * float((2 * WAVES) ** -0.5) * code


class Map(OfPlaces):
    """A map by hand: in each cell the mean of what the camera showed there, weighted by age."""

    def __init__(self, config: IAPConfig, reader: Reader, rngs: nnx.Rngs) -> None:
        super().__init__(config, reader)
        self.foothold = Scores(config, self._channels, rngs)

    def start(self, draw: Any) -> Any:
        """A map [cells, channels + 1] of cells that are empty."""
        return jnp.zeros((CELLS[0] * CELLS[1], self._channels + 1))

    def __call__(
        self, draw: Any, state: Any, tokens: Array, observation: Observation, inputs: Array
    ) -> tuple[Array, Any]:
        """As `Attention`."""
        with jax.named_scope("projections"):
            seen, mask, asked = self._places(observation)
        shown = self._shown(tokens)
        with jax.named_scope("contraction"):
            values = jnp.concatenate([shown, jnp.ones_like(shown[:, :1])], axis=1)
            values = values if mask is None else values * mask[:, None]
            state = (self.config.memory_decay * state).at[_cells(seen)].add(values, mode="promise_in_bounds")
        return self._scored(self.foothold, self._read(draw, state, asked)), state

    def _read(self, draw: Any, state: Any, places: Array) -> Array:
        with jax.named_scope("contraction"):
            found = jnp.take(state, _cells(places), axis=0, mode="clip")
            return found[:, :-1] / jnp.maximum(found[:, -1:], 1e-6)


class Recurrent(_Memory):
    """A gated recurrent unit with a state for each leg, of the means of rows of tokens on its side."""

    def __init__(self, config: IAPConfig, reader: Reader, rngs: nnx.Rngs) -> None:
        super().__init__(config, reader)
        choice = config.choice(reader)
        assert choice is not None
        width = self._tokens[0] * self._channels + len(reader.outputs[0].inputs)
        self.cell = nnx.GRUCell(width, HIDDEN, rngs=rngs)
        zeros = nnx.initializers.zeros
        self.foothold = nnx.Linear(HIDDEN, len(choice.moves), use_bias=False, kernel_init=zeros, rngs=rngs)

    def start(self, draw: Any) -> Any:
        """A state of zeros."""
        return jnp.zeros((len(self.reader.outputs), HIDDEN))

    def __call__(
        self, draw: Any, state: Any, tokens: Array, observation: Observation, inputs: Array
    ) -> tuple[Array, Any]:
        """As `Attention`; `inputs` [outputs, I] are those of the outputs."""
        with jax.named_scope("encoder"):
            image = self._shown(tokens).reshape(*self._tokens, -1)
            half = self._tokens[1] // 2
            sides = [
                image[:, half:] if output.mirrored else image[:, : self._tokens[1] - half]
                for output in self.reader.outputs
            ]
            rows = jnp.stack([jnp.mean(side, axis=1).ravel() for side in sides])
            state, _ = self.cell(state, jnp.concatenate([rows, inputs], axis=1))
            return self.foothold(state), state


def _cells(places: Array) -> Array:
    """The numbers [N] of the cells of a map in which `places` [N, 2] lie."""
    cells = jnp.mod(jnp.floor(places / CELL), np.array(CELLS, np.float32))
    return (cells[:, 0] * CELLS[1] + cells[:, 1]).astype(jnp.int32)


MEMORIES = {"memory": Attention, "map": Map, "gru": Recurrent}


def memory_of(config: IAPConfig, reader: Reader, rngs: nnx.Rngs) -> Any:
    """The memory that a reader's outputs read."""
    return MEMORIES["memory" if config.attends else config.encoder](config, reader, rngs)
