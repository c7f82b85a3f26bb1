"""Vision-Performer (HRF, Appendix K.2): a transformer on image patches, its attention any mechanism.

Patches of RGB images are tokens. Blocks of attention and MLP read them, a few numbers of every token are read
out side by side, and vectors, such as the poses of end effectors, are joined to them. The published texts
leave sizes, readout and normalisation open; ours are the defaults of `VisionPerformerConfig`. Queries and
keys have length one, as in Appendix K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from robopolicy.policies.base import Heads, Observation, PolicyFunctions
from robopolicy.policies.energy import head_of
from robopolicy.policies.multihead import Features, MultiHeadAttention
from robopolicy.policies.patches import colours, cut
from robopolicy.policies.vision_performer_config import (
    NORMS,
    ImageInput,
    VisionPerformerConfig,
    statistics_shapes,
)


class Block(nnx.Module):
    """Attention and an MLP, each on normalised tokens and added to them (pre-norm)."""

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs, dtype: str) -> None:
        self.attention_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.attention = MultiHeadAttention(
            config.attention,
            config.width,
            config.heads,
            rngs=rngs,
            norm_fn=NORMS[config.qk_norm],
            dtype=dtype,
        )
        self.mlp_norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.expand = nnx.Linear(config.width, config.mlp, dtype=dtype, rngs=rngs)
        self.contract = nnx.Linear(config.mlp, config.width, dtype=dtype, rngs=rngs)

    def __call__(self, tokens: Array, see: Callable[[str, Array], None]) -> Array:
        with jax.named_scope("projections"):
            normalised = self.attention_norm(tokens)
            attended = self.attention(normalised)
        see("attention", attended)
        with jax.named_scope("encoder"):
            tokens = tokens + attended
            made = self.contract(jax.nn.relu(self.expand(self.mlp_norm(tokens))))
            see("mlp", made)
            return tokens + made


class Readout(nnx.Module):
    """Tokens [L, width] to one vector [L * channels]: a few numbers of each, which keeps its place.

    Averages over tokens, weighted by learned scores, hardly learn where in the image something lies.
    """

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs) -> None:
        self.channels = nnx.Linear(config.width, config.channels, rngs=rngs)

    def __call__(self, tokens: Array) -> Array:
        return jax.nn.relu(self.channels(tokens)).ravel()


class VisionPerformer(nnx.Module):
    """Encoder and head. Drawn features are variables of their own kind, and no parameters."""

    def __init__(self, config: VisionPerformerConfig, rngs: nnx.Rngs, dtype: str = "float32") -> None:
        self.config = config
        pixels = 3 * config.patch**2
        self.patches = nnx.Dict(
            {i.name: nnx.Linear(pixels, config.width, dtype=dtype, rngs=rngs) for i in config.images}
        )
        self.positions = nnx.Param(jnp.concatenate([_positions(config, image) for image in config.images]))
        self.blocks = nnx.List([Block(config, rngs, dtype) for _ in range(config.depth)])
        self.norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.readout = Readout(config, rngs)
        # Two layers, each with weights for inputs as many as it has: in one, thousands of numbers read out of
        # an image would drown a few of the vectors.
        self.seen = nnx.Linear(config.tokens * config.channels, config.encoding, rngs=rngs)
        if config.vectors:
            self.felt = nnx.Linear(config.numbers, config.encoding, use_bias=False, rngs=rngs)
        self.head = head_of(config.head, config.head_config).network(rngs)

    def encode(self, images: Observation, felt: Array | None, see: Callable[[str, Array], None]) -> Array:
        """Images [H, W, 3] uint8 by name and normalised vectors [N], side by side, to an encoding [E].

        `see` is called with every layer's name and output, in order.
        """
        tokens = self._tokens(images)
        see("patches", tokens)
        for number, block in enumerate(self.blocks):
            tokens = block(tokens, partial(_seen_in, number, see))
        with jax.named_scope("encoder"):
            read = self.readout(self.norm(tokens))
            see("readout", read)
            joint = self.seen(read[None])
            if felt is not None:
                joint = joint + self.felt(felt[None])
            encoding = jax.nn.relu(joint)[0]
        see("encoding", encoding)
        return encoding

    def heads(self, images: Observation) -> tuple[Heads, ...]:
        """The queries and keys of every block on images [H, W, 3] uint8 by name."""
        tokens, found = self._tokens(images), []
        for block in self.blocks:
            found.append(Heads(*block.attention.queries_and_keys(block.attention_norm(tokens))))
            tokens = block(tokens, lambda name, array: None)
        return tuple(found)

    def ranked(self, images: Observation) -> dict[str, Array]:
        """How much tokens of images [H, W, 3] uint8 are attended to on average, [rows, columns] by name."""
        tokens, found = self._tokens(images), []
        for block in self.blocks:
            found.append(block.attention.rank(block.attention_norm(tokens)))
            tokens = block(tokens, lambda name, array: None)
        mean, config = jnp.concatenate(found).mean(axis=0), self.config
        each = jnp.split(mean, np.cumsum(config.counts)[:-1])
        return {i.name: part.reshape(config.grid(i)) for i, part in zip(config.images, each, strict=True)}

    def _tokens(self, images: Observation) -> Array:
        with jax.named_scope("patches"):
            each = [
                self.patches[image.name](colours(cut(images[image.name], self.config.patch)))
                for image in self.config.images
            ]
            tokens = jnp.concatenate(each) if len(each) > 1 else each[0]
            return tokens + self.positions[...]


def _seen_in(block: int, see: Callable[[str, Array], None], name: str, array: Array) -> None:
    see(f"block {block}, {name}", array)


def _positions(config: VisionPerformerConfig, image: ImageInput) -> NDArray[np.float32]:
    """What positions [L, width] begin as: sines and cosines of row and column, of wavelengths from two tokens
    to four images, a quarter of the width each.
    """
    grid = config.grid(image)
    octaves = np.arange((config.width + 3) // 4)
    waves = np.pi * float(max(grid)) ** -(octaves / max(len(octaves) - 1, 1)) / 2 ** (octaves > 0)
    rows, columns = np.meshgrid(*map(np.arange, grid), indexing="ij")
    angles = [place.reshape(-1, 1) * waves for place in (rows, columns)]
    found = np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], axis=1)
    return (0.5 * found[:, : config.width]).astype(np.float32)


class Learner(NamedTuple):
    """What training needs besides a policy.

    Attributes:
      policy: its functions.
      loss: (parameters, features, observation, action [A], key, negatives) -> loss of one demonstration.
      layers: (parameters, features, observation) -> every layer's output by name, from first to last.
      attention: spec of its mechanism.
    """

    policy: PolicyFunctions
    loss: Callable[..., Array]
    layers: Callable[[Any, Any, Observation], dict[str, Array]]
    attention: str


def vision_performer(
    config: VisionPerformerConfig, statistics: Mapping[str, Any], dtype: str = "float32"
) -> Learner:
    """The policy that `config` describes, and its loss.

    Args:
      config: its settings.
      statistics: for each vector `NAME_shift` and `NAME_scale` [N], by which it is normalised, (values -
        shift) * scale; and `action_low` and `action_high` [A], between which actions lie. They become part
        of the features.
      dtype: what the encoder's matrix products outside of the attention mechanism are computed in.
        Parameters, features, norms and sums are float32 in any case.
    """
    model = nnx.eval_shape(lambda: VisionPerformer(config, nnx.Rngs(0), dtype))
    graph = nnx.graphdef(model)
    head = head_of(config.head, config.head_config)
    known: dict[str, Array] = {}
    for name, shape in statistics_shapes(config).items():
        if name not in statistics:
            raise ValueError(f"statistics lack {name}: it must be there, of shape {shape}")
        known[name] = jnp.asarray(statistics[name], jnp.float32)
        if known[name].shape != shape:
            raise ValueError(f"statistics {name} has shape {known[name].shape}: it must be {shape}")

    def init(key: Array) -> Any:
        return nnx.state(VisionPerformer(config, nnx.Rngs(params=key, features=0)), nnx.Param)

    def init_features(key: Array) -> Any:
        drawn, searched = jax.random.split(key)
        model = VisionPerformer(config, nnx.Rngs(params=0, features=drawn))
        return {"draws": nnx.state(model, Features), "search": head.draw(searched), "statistics": known}

    def encoded(
        model: VisionPerformer, features: Any, observation: Observation, see: Callable[[str, Array], None]
    ) -> Array:
        numbers, felt = features["statistics"], []
        with jax.named_scope("encoder"):
            for vector in config.vectors:
                shift, scale = (numbers[f"{vector.name}_{part}"] for part in ("shift", "scale"))
                felt.append((observation[vector.name] - shift) * scale)
            joined = jnp.concatenate(felt) if len(felt) > 1 else felt[0] if felt else None
        return model.encode(observation, joined, see)

    def inspect(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model = nnx.merge(graph, parameters, features["draws"])
        encoding = encoded(model, features, observation, lambda name, array: None)
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        with jax.named_scope("head"):
            chosen, scores = head.choose(model.head, features["search"], encoding)
            action = jnp.clip(low + (chosen + 1.0) * (0.5 * (high - low)), -1.0, 1.0)
        return {"action": action, "scores": scores}

    def act(parameters: Any, features: Any, observation: Observation) -> Array:
        return inspect(parameters, features, observation)["action"]

    def attended(parameters: Any, features: Any, observation: Observation) -> tuple[Heads, ...]:
        return nnx.merge(graph, parameters, features["draws"]).heads(observation)

    def ranked(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        return nnx.merge(graph, parameters, features["draws"]).ranked(observation)

    def loss(
        parameters: Any, features: Any, observation: Observation, action: Array, key: Array, negatives: int
    ) -> Array:
        model = nnx.merge(graph, parameters, features["draws"])
        encoding = encoded(model, features, observation, lambda name, array: None)
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        return head.loss(model.head, encoding, 2.0 * (action - low) / (high - low) - 1.0, key, negatives)

    def layers(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model = nnx.merge(graph, parameters, features["draws"])
        found: dict[str, Array] = {}
        encoding = encoded(model, features, observation, found.__setitem__)
        found["head"] = head.choose(model.head, features["search"], encoding)[1]
        return found

    shapes: dict[str, tuple[int, ...]] = {i.name: (i.rows, i.columns, 3) for i in config.images}
    shapes |= {vector.name: (vector.size,) for vector in config.vectors}
    policy = PolicyFunctions(
        init,
        init_features,
        act,
        inspect,
        attended,
        ranked,
        shapes,
        config.actions,
        observation_dtypes=dict.fromkeys((image.name for image in config.images), "uint8"),
    )
    return Learner(policy, loss, layers, config.attention)
