"""Vision-Performer (HRF, Appendix K.2): a transformer on image patches, its attention any mechanism.

Patches of RGB images are tokens. Blocks of attention and MLP transform them, a layer reads a few numbers of
every token, and vectors, such as the poses of end effectors, join these. The published texts leave sizes,
readout and normalisation open; ours are the defaults of `VisionPerformerConfig`. Queries and keys have length
one, as in Appendix K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from robopolicy.policies.base import Heads, Observation, PolicyFunctions, constants_of, side_by_side
from robopolicy.policies.energy import HEADS
from robopolicy.policies.multihead import Features, MultiHeadAttention
from robopolicy.policies.patches import colours, cut
from robopolicy.policies.token_blocks import Block, See, ignore
from robopolicy.policies.vision_performer_config import (
    ImageInput,
    VisionPerformerConfig,
    statistics_shapes,
)


class Readout(nnx.Module):
    """Tokens [L, width] to one vector [L * channels]: a few numbers of each, which keeps its place.

    Averages over tokens, weighted by learned scores, hardly learn where in the image something lies.
    """

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs) -> None:
        self.channels = nnx.Linear(config.width, config.channels, rngs=rngs)

    def __call__(self, tokens: Array) -> Array:
        return jax.nn.relu(self.channels(tokens)).ravel()


class VisionPerformer(nnx.Module):
    """Encoder and head. Random features are variables of their own kind, and no parameters."""

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs, dtype: str = "float32") -> None:
        self.config = config
        pixels = 3 * config.patch**2
        if config.sees:
            self.patches = nnx.Dict(
                {i.name: nnx.Linear(pixels, config.width, dtype=dtype, rngs=rngs) for i in config.images}
            )
            self.positions = nnx.Param(jnp.concatenate([_positions(config, i) for i in config.images]))
            depth = 0 if config.encoder == "relu" else config.depth
            self.blocks = nnx.List([Block(config, rngs, dtype) for _ in range(depth)])
            self.norm = nnx.LayerNorm(config.width, rngs=rngs)
            self.readout = Readout(config, rngs)
            # Two layers, each initialised for its own number of inputs: in one, thousands of numbers of an
            # image would drown a few of the vectors.
            self.seen = nnx.Linear(config.tokens * config.channels, config.encoding, rngs=rngs)
        if config.vectors:
            self.felt = nnx.Linear(config.numbers, config.encoding, use_bias=not config.sees, rngs=rngs)
        self.head = HEADS[config.head](config.head_config).network(rngs)

    def encode(self, images: Observation, vectors: Array | None, see: See) -> Array:
        """Images [H, W, 3] uint8 by name and all normalised vectors [N] to an encoding [E].

        Calls `see` with every layer's name and output, in order.
        """
        parts = []
        if self.config.sees:
            tokens = self._tokens(images)
            see("patches", tokens)
            for number, block in enumerate(self.blocks):
                tokens = block(tokens, partial(_see_in_block, see, number))
            with jax.named_scope("encoder"):
                read = self.readout(self.norm(tokens))
                see("readout", read)
                parts.append(self.seen(read[None]))
        with jax.named_scope("encoder"):
            if vectors is not None:
                parts.append(self.felt(vectors[None]))
            encoding = jax.nn.relu(sum(parts[1:], parts[0]))[0]
        see("encoding", encoding)
        return encoding

    def heads(self, images: Observation) -> tuple[Heads, ...]:
        """The queries and keys of every block on images [H, W, 3] uint8 by name."""
        return tuple(Heads(*attention.queries_and_keys(t)) for attention, t in self._attentions(images))

    def ranked(self, images: Observation) -> dict[str, Array]:
        """How much tokens of images [H, W, 3] uint8 are attended to on average, [rows, columns] by name.

        It is empty for a policy without attention.
        """
        if not self.config.attends:
            return {}
        ranks = [attention.rank(tokens) for attention, tokens in self._attentions(images)]
        mean, config = jnp.concatenate(ranks).mean(axis=0), self.config
        each = jnp.split(mean, np.cumsum(config.counts)[:-1])
        return {i.name: part.reshape(config.grid(i)) for i, part in zip(config.images, each, strict=True)}

    def _attentions(self, images: Observation) -> Iterator[tuple[MultiHeadAttention, Array]]:
        """The attention of every block, and the tokens [L, width] that it reads."""
        if not self.config.attends:
            return
        tokens = self._tokens(images)
        for block in self.blocks:
            yield block.attention, block.attention_norm(tokens)
            tokens = block(tokens)

    def _tokens(self, images: Observation) -> Array:
        with jax.named_scope("patches"):
            each = [
                self.patches[image.name](colours(cut(images[image.name], self.config.patch)))
                for image in self.config.images
            ]
            tokens = side_by_side(each) + self.positions[...]
            return jax.nn.relu(tokens) if self.config.encoder == "relu" else tokens


def _see_in_block(see: See, number: int, name: str, output: Array) -> None:
    see(f"block {number}, {name}", output)


def _positions(config: VisionPerformerConfig, image: ImageInput) -> NDArray[np.float32]:
    """First positions [L, width]: sines and cosines of row and column, a quarter of the width each.

    Their wavelengths reach from two tokens to four images.
    """
    grid = config.grid(image)
    octaves = np.arange((config.width + 3) // 4)
    waves = np.pi * float(max(grid)) ** -(octaves / max(len(octaves) - 1, 1)) / 2 ** (octaves > 0)
    rows, columns = np.meshgrid(*map(np.arange, grid), indexing="ij")
    angles = [place.reshape(-1, 1) * waves for place in (rows, columns)]
    positions = np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], axis=1)
    return (0.5 * positions[:, : config.width]).astype(np.float32)


class Learner(NamedTuple):
    """A policy, and the functions that train it.

    Attributes:
      policy: its functions.
      loss: (parameters, features, observation, action [A], key, negatives) -> loss of one demonstration.
      layers: (parameters, features, observation) -> every layer's output by name, from first to last.
      config: the settings of the policy.
    """

    policy: PolicyFunctions
    loss: Callable[..., Array]
    layers: Callable[[Any, Any, Observation], dict[str, Array]]
    config: VisionPerformerConfig


def vision_performer(
    config: VisionPerformerConfig, statistics: Mapping[str, Any], dtype: str = "float32"
) -> Learner:
    """The policy of `config`, and its loss.

    Args:
      config: its settings.
      statistics: of the data, which become part of the features: for each vector `NAME_shift` and
        `NAME_scale` [N], which normalise it, (values - shift) * scale; and the limits of actions
        `action_low` and `action_high` [A].
      dtype: of the encoder's matrix products outside of the attention mechanism. Parameters, features, norms
        and sums are always float32.

    Raises ValueError if `statistics` lack an array, or have one of another shape.
    """
    graph = nnx.graphdef(nnx.eval_shape(lambda: VisionPerformer(config, nnx.Rngs(0), dtype)))
    head = HEADS[config.head](config.head_config)
    constants = constants_of("statistics", statistics, statistics_shapes(config))

    def init(key: Array) -> Any:
        return nnx.state(VisionPerformer(config, nnx.Rngs(params=key, features=0)), nnx.Param)

    def init_features(key: Array) -> Any:
        draws, search = jax.random.split(key)
        model = VisionPerformer(config, nnx.Rngs(params=0, features=draws))
        return {"draws": nnx.state(model, Features), "search": head.draw(search), "statistics": constants}

    def merged(parameters: Any, features: Any) -> VisionPerformer:
        return nnx.merge(graph, parameters, features["draws"])

    def encode(model: VisionPerformer, features: Any, observation: Observation, see: See = ignore) -> Array:
        numbers, vectors = features["statistics"], []
        with jax.named_scope("encoder"):
            for vector in config.vectors:
                shift, scale = (numbers[f"{vector.name}_{part}"] for part in ("shift", "scale"))
                vectors.append((observation[vector.name] - shift) * scale)
            both = side_by_side(vectors) if vectors else None
        return model.encode(observation, both, see)

    def inspect(
        parameters: Any, features: Any, observation: Observation, state: Any
    ) -> tuple[dict[str, Array], Any]:
        model = merged(parameters, features)
        encoding = encode(model, features, observation)
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        with jax.named_scope("head"):
            chosen, scores = head.choose(model.head, features["search"], encoding)
            action = jnp.clip(low + (chosen + 1.0) * (0.5 * (high - low)), -1.0, 1.0)
        return {"action": action, "scores": scores}, state

    def act(parameters: Any, features: Any, observation: Observation, state: Any) -> tuple[Array, Any]:
        results, state = inspect(parameters, features, observation, state)
        return results["action"], state

    def loss(
        parameters: Any, features: Any, observation: Observation, action: Array, key: Array, negatives: int
    ) -> Array:
        model = merged(parameters, features)
        encoding = encode(model, features, observation)
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        return head.loss(model.head, encoding, 2.0 * (action - low) / (high - low) - 1.0, key, negatives)

    def layers(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model, outputs = merged(parameters, features), dict[str, Array]()
        encoding = encode(model, features, observation, outputs.__setitem__)
        outputs["head"] = head.choose(model.head, features["search"], encoding)[1]
        return outputs

    shapes: dict[str, tuple[int, ...]] = {i.name: (i.rows, i.columns, 3) for i in config.images}
    policy = PolicyFunctions(
        init,
        init_features,
        act,
        inspect,
        lambda parameters, features, observation, state: merged(parameters, features).heads(observation),
        lambda parameters, features, observation, state: merged(parameters, features).ranked(observation),
        {**shapes, **{vector.name: (vector.size,) for vector in config.vectors}},
        config.actions,
        observation_dtypes=dict.fromkeys(shapes, "uint8"),
    )
    return Learner(policy, loss, layers, config)
