"""Vision-Performer (HRF, Appendix K.2): a transformer on image patches, its attention any mechanism.

Patches of RGB images are tokens. Blocks of attention and MLP transform them, a layer reads a few numbers of
every token, and vectors, such as the poses of end effectors, join these. The published texts leave sizes,
readout and normalisation open; ours are the defaults of `VisionPerformerConfig`. Queries and keys have length
one by default, as in Appendix K. With a history of frames or chunks of actions, a policy has a state.
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

from robopolicy.policies.action_chunks import in_turn
from robopolicy.policies.base import (
    Heads,
    Observation,
    PolicyFunctions,
    constants_of,
    side_by_side,
)
from robopolicy.policies.energy import HEADS
from robopolicy.policies.frame_history import FramePatches
from robopolicy.policies.multihead import Features, MultiHeadAttention
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
        if config.sees:
            sizes = config.history, config.patch, config.width
            self.patches = nnx.Dict(
                {i.name: FramePatches(*sizes, dtype=dtype, rngs=rngs) for i in config.images}
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

    def tokens(self, images: Observation) -> Array | None:
        """The tokens [L, width] of images [H, W, 3] uint8 by name; None for a policy that sees none.

        With a history, `images` are frames [T, H, W, 3], this step's first.
        """
        if not self.config.sees:
            return None
        with jax.named_scope("patches"):
            return self._placed([self.patches[i.name].of_frames(images[i.name]) for i in self.config.images])

    def next_tokens(self, images: Observation, state: Any) -> tuple[Array | None, Any]:
        """As `tokens`, of images [H, W, 3] after the frames of a state; and what the next state holds."""
        if self.config.history == 1:
            return self.tokens(images), {}
        with jax.named_scope("patches"):
            is_first = state["begun"] < 0.5
            each = {
                i.name: self.patches[i.name].of_next(images[i.name], state["frames"][i.name], is_first)
                for i in self.config.images
            }
            tokens = self._placed([tokens for tokens, _ in each.values()])
            kept = {name: frames for name, (_, frames) in each.items()}
            return tokens, {"frames": kept, "begun": jnp.ones(1)}

    def _placed(self, each: list[Array]) -> Array:
        tokens = side_by_side(each) + self.positions[...]
        return jax.nn.relu(tokens) if self.config.encoder == "relu" else tokens

    def encode(self, tokens: Array | None, vectors: Array | None, see: See) -> Array:
        """Tokens [L, width] of all images and all normalised vectors [N] to an encoding [E].

        Calls `see` with every layer's name and output, in order.
        """
        parts = []
        if tokens is not None:
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

    def heads(self, tokens: Array | None) -> tuple[Heads, ...]:
        """The queries and keys of every block on tokens [L, width] of all images."""
        return tuple(Heads(*attention.queries_and_keys(t)) for attention, t in self._attentions(tokens))

    def ranked(self, tokens: Array | None) -> dict[str, Array]:
        """How much tokens [L, width] of all images are attended to on average, [rows, columns] by image.

        It is empty for a policy without attention.
        """
        if not self.config.attends:
            return {}
        ranks = [attention.rank(read) for attention, read in self._attentions(tokens)]
        mean, config = jnp.concatenate(ranks).mean(axis=0), self.config
        each = jnp.split(mean, np.cumsum(config.counts)[:-1])
        return {i.name: part.reshape(config.grid(i)) for i, part in zip(config.images, each, strict=True)}

    def _attentions(self, tokens: Array | None) -> Iterator[tuple[MultiHeadAttention, Array]]:
        """The attention of every block, and the tokens [L, width] that it reads."""
        if tokens is None or not self.config.attends:
            return
        for block in self.blocks:
            yield block.attention, block.attention_norm(tokens)
            tokens = block(tokens)


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

    With a history of T > 1 frames, an observation in training holds frames [T, H, W, 3] of each image, this
    step's first, in place of a state. With a chunk of C > 1 actions, `action` is [C, A].

    Attributes:
      policy: its functions.
      loss: (parameters, features, observation, action [A], key, negatives) -> loss of one demonstration.
      chosen: (parameters, features, observation) -> the chunk of actions [C, A] that it chooses.
      layers: (parameters, features, observation) -> every layer's output by name, from first to last.
      config: the settings of the policy.
    """

    policy: PolicyFunctions
    loss: Callable[..., Array]
    chosen: Callable[[Any, Any, Observation], Array]
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
      dtype: of matrix products of patches and blocks outside of the mechanism. Parameters, features, norms
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

    def encode(
        model: VisionPerformer,
        features: Any,
        tokens: Array | None,
        observation: Observation,
        see: See = ignore,
    ) -> Array:
        numbers, vectors = features["statistics"], []
        with jax.named_scope("encoder"):
            for vector in config.vectors:
                shift, scale = (numbers[f"{vector.name}_{part}"] for part in ("shift", "scale"))
                vectors.append((observation[vector.name] - shift) * scale)
            both = side_by_side(vectors) if vectors else None
        return model.encode(tokens, both, see)

    def choose(model: VisionPerformer, features: Any, encoding: Array) -> tuple[Array, Array]:
        """A chunk of actions [C, A], and the scores that determine it."""
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        with jax.named_scope("head"):
            found, scores = head.choose(model.head, features["search"], encoding)
            chunk = found.reshape(config.chunk, config.actions)
            return jnp.clip(low + (chunk + 1.0) * (0.5 * (high - low)), -1.0, 1.0), scores

    def init_state(features: Any) -> Any:
        state: dict[str, Any] = {}
        if config.history > 1:
            for image, count in zip(config.images, config.counts, strict=True):
                frames = jnp.zeros((config.history - 1, count, config.width))
                state.setdefault("frames", {})[image.name] = frames
            state["begun"] = jnp.zeros(1)
        if config.chunk > 1:
            state |= {"rest": jnp.zeros((config.chunk - 1, config.actions)), "left": jnp.zeros(1)}
        return state or ()

    def inspect(
        parameters: Any, features: Any, observation: Observation, state: Any
    ) -> tuple[dict[str, Array], Any]:
        model = merged(parameters, features)
        tokens, following = model.next_tokens(observation, state)
        chunk, scores = choose(model, features, encode(model, features, tokens, observation))
        action = chunk[0]
        if config.chunk > 1:
            with jax.named_scope("head"):
                action, rest, left = in_turn(chunk, state["rest"], state["left"])
            following |= {"rest": rest, "left": left}
        return {"action": action, "scores": scores}, following or state

    def act(parameters: Any, features: Any, observation: Observation, state: Any) -> tuple[Array, Any]:
        results, state = inspect(parameters, features, observation, state)
        return results["action"], state

    def loss(
        parameters: Any, features: Any, observation: Observation, action: Array, key: Array, negatives: int
    ) -> Array:
        model = merged(parameters, features)
        encoding = encode(model, features, model.tokens(observation), observation)
        low, high = features["statistics"]["action_low"], features["statistics"]["action_high"]
        wanted = (2.0 * (action - low) / (high - low) - 1.0).ravel()
        return head.loss(model.head, encoding, wanted, key, negatives)

    def chosen(parameters: Any, features: Any, observation: Observation) -> Array:
        model = merged(parameters, features)
        return choose(model, features, encode(model, features, model.tokens(observation), observation))[0]

    def layers(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model, outputs = merged(parameters, features), dict[str, Array]()
        encoding = encode(model, features, model.tokens(observation), observation, outputs.__setitem__)
        outputs["head"] = head.choose(model.head, features["search"], encoding)[1]
        return outputs

    def attended(parameters: Any, features: Any, observation: Observation, state: Any) -> tuple[Heads, ...]:
        model = merged(parameters, features)
        return model.heads(model.next_tokens(observation, state)[0])

    def ranked(parameters: Any, features: Any, observation: Observation, state: Any) -> dict[str, Array]:
        model = merged(parameters, features)
        return model.ranked(model.next_tokens(observation, state)[0])

    shapes: dict[str, tuple[int, ...]] = {i.name: (i.rows, i.columns, 3) for i in config.images}
    policy = PolicyFunctions(
        init,
        init_features,
        act,
        inspect,
        attended,
        ranked,
        {**shapes, **{vector.name: (vector.size,) for vector in config.vectors}},
        config.actions,
        observation_dtypes=dict.fromkeys(shapes, "uint8"),
        init_state=init_state,
    )
    return Learner(policy, loss, chosen, layers, config)
