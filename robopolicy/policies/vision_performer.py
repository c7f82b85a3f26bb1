"""Vision-Performer (HRF, Appendix K.2): a transformer on image patches, its attention any mechanism.

Patches of an RGB image are tokens. Blocks of attention and MLP read them, a few numbers of every token are
read out side by side, and the poses of the end effectors are joined to them. The published texts leave sizes,
readout and normalisation open; ours are the defaults of `VisionPerformerConfig`. Queries and keys have length
one, as in Appendix K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from robopolicy.attention import attention
from robopolicy.naming import one_of
from robopolicy.policies.base import Heads, Observation, Policy
from robopolicy.policies.energy import HEADS, MOST, HeadConfig, head_of
from robopolicy.policies.multihead import Features, MultiHeadAttention, tempered, unit

NORMS = {"unit": unit, "tempered": tempered}
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 32, "depth": 1, "heads": 2, "mlp": 64, "encoding": 32, "hidden": 32},
    "small": {"width": 48, "depth": 2, "heads": 3, "mlp": 96, "encoding": 64, "hidden": 64},
    "base": {"width": 192, "depth": 4, "heads": 12, "mlp": 384, "encoding": 192, "hidden": 128},
}
LEAST_TOKENS, MOST_TOKENS = 12, 50  # a side, with the patch that is chosen where none is given
STATISTICS = ("pose_shift", "pose_scale", "action_low", "action_high")


@dataclass(frozen=True)
class VisionPerformerConfig:
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism, exact `softmax` included.
      image: pixels a side of the square RGB image.
      patch: pixels a side of a token.
      width: of tokens.
      depth: blocks of attention and MLP.
      heads: of attention; they divide `width`.
      mlp: width of the hidden layer in a block.
      channels: numbers of each token that are read out.
      qk_norm: `unit` gives queries and keys length one (HRF, Appendix K); `tempered` divides them by the
        fourth root of their width, for the usual kernel exp(q.k / sqrt(d)).
      poses: numbers in the observation `poses`.
      actions: numbers in an action.
      encoding: width of what the head is given.
      head: how actions are chosen, a name in `energy.HEADS`.
      hidden: width of the head's hidden layers.
      samples: candidates at a time when an action is searched for; of `autoregressive`, steps along a line.
      iterations: rounds of `derivative_free` after the first look; of `langevin`, its steps.
    """

    attention: str
    image: int = 500
    patch: int = 25
    width: int = 48
    depth: int = 2
    heads: int = 3
    mlp: int = 96
    channels: int = 8
    qk_norm: str = "unit"
    poses: int = 14
    actions: int = 12
    encoding: int = 64
    head: str = "autoregressive"
    hidden: int = 64
    samples: int = 128
    iterations: int = 3

    def __post_init__(self) -> None:
        for name in (
            *("image", "patch", "width", "depth", "heads", "mlp", "channels", "poses", "actions"),
            *("encoding", "hidden", "samples", "iterations"),
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if self.samples > MOST:
            raise ValueError(f"samples is {self.samples}: it must be at most {MOST}")
        if self.image % self.patch:
            raise ValueError(f"patch is {self.patch}: it must divide the image's {self.image} pixels")
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}: it must divide the width {self.width}")
        one_of("qk_norm", self.qk_norm, NORMS)
        one_of("head", self.head, HEADS)
        attention(self.attention)

    @property
    def side(self) -> int:
        """Tokens a side."""
        return self.image // self.patch

    @property
    def tokens(self) -> int:
        """How many tokens an image is cut into."""
        return self.side**2

    @property
    def head_config(self) -> HeadConfig:
        """What the head is made from."""
        return HeadConfig(self.encoding, self.actions, self.hidden, self.samples, self.iterations)


def default_patch(image: int) -> int:
    """The largest patch that gives twelve tokens a side or more: 25 for 500 pixels, 8 for 96.

    Raises ValueError where it would give more than fifty.
    """
    sizes = [patch for patch in range(1, image + 1) if image % patch == 0]
    found = max((patch for patch in sizes if image // patch >= LEAST_TOKENS), default=1)
    if image // found > MOST_TOKENS:
        raise ValueError(f"patch is not given: {image} pixels a side can be cut into {sizes}, so give one")
    return found


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
        self.patches = nnx.Linear(3 * config.patch**2, config.width, dtype=dtype, rngs=rngs)
        self.positions = nnx.Param(jnp.asarray(_positions(config)))
        self.blocks = nnx.List([Block(config, rngs, dtype) for _ in range(config.depth)])
        self.norm = nnx.LayerNorm(config.width, rngs=rngs)
        self.readout = Readout(config, rngs)
        # Two layers, each with weights for inputs as many as it has: in one, thousands of numbers read out of
        # an image would drown fourteen of the poses.
        self.seen = nnx.Linear(config.tokens * config.channels, config.encoding, rngs=rngs)
        self.felt = nnx.Linear(config.poses, config.encoding, use_bias=False, rngs=rngs)
        self.head = head_of(config.head, config.head_config).network(rngs)

    def encode(self, image: Array, poses: Array, see: Callable[[str, Array], None]) -> Array:
        """An image [S, S, 3] uint8 and normalised poses [P] to an encoding [E].

        `see` is told of every layer's output, by name and in order.
        """
        tokens = self._tokens(image)
        see("patches", tokens)
        for number, block in enumerate(self.blocks):
            tokens = block(tokens, partial(_seen_in, number, see))
        with jax.named_scope("encoder"):
            read = self.readout(self.norm(tokens))
            see("readout", read)
            encoding = jax.nn.relu(self.seen(read[None]) + self.felt(poses[None]))[0]
        see("encoding", encoding)
        return encoding

    def heads(self, image: Array) -> tuple[Heads, ...]:
        """The queries and keys of every block on an image [S, S, 3] uint8."""
        tokens, found = self._tokens(image), []
        for block in self.blocks:
            found.append(Heads(*block.attention.queries_and_keys(block.attention_norm(tokens))))
            tokens = block(tokens, lambda name, array: None)
        return tuple(found)

    def ranked(self, image: Array) -> Array:
        """How much each token of an image [S, S, 3] uint8 is attended to, [side, side], on average."""
        tokens, found = self._tokens(image), []
        for block in self.blocks:
            found.append(block.attention.rank(block.attention_norm(tokens)))
            tokens = block(tokens, lambda name, array: None)
        return jnp.concatenate(found).mean(axis=0).reshape(self.config.side, self.config.side)

    def _tokens(self, image: Array) -> Array:
        with jax.named_scope("patches"):
            return self.patches(_patches(self.config, image)) + self.positions[...]


def _seen_in(block: int, see: Callable[[str, Array], None], name: str, array: Array) -> None:
    see(f"block {block}, {name}", array)


def _patches(config: VisionPerformerConfig, image: Array) -> Array:
    """An image [S, S, 3] uint8 as tokens [L, 3 * patch * patch] in [-1, 1], row by row."""
    side, p = config.side, config.patch
    cut = image.reshape(side, p, side, p, 3).transpose(0, 2, 1, 3, 4).reshape(side * side, 3 * p * p)
    return cut.astype(jnp.float32) * (2.0 / 255.0) - 1.0


def _positions(config: VisionPerformerConfig) -> NDArray[np.float32]:
    """What positions [L, width] begin as: sines and cosines of row and column, of wavelengths from two tokens
    to four images, a quarter of the width each.
    """
    octaves = np.arange((config.width + 3) // 4)
    waves = np.pi * config.side ** -(octaves / max(len(octaves) - 1, 1)) / 2 ** (octaves > 0)
    rows, columns = np.meshgrid(*[np.arange(config.side)] * 2, indexing="ij")
    angles = [place.reshape(-1, 1) * waves for place in (rows, columns)]
    found = np.concatenate([f(angle) for angle in angles for f in (np.sin, np.cos)], axis=1)
    return (0.5 * found[:, : config.width]).astype(np.float32)


class Learner(NamedTuple):
    """What training needs besides a policy.

    Attributes:
      policy: as it acts.
      loss: (parameters, features, observation, action [A], key, negatives) -> loss of one demonstration.
      layers: (parameters, features, observation) -> every layer's output by name, from first to last.
      attention: spec of its mechanism.
    """

    policy: Policy
    loss: Callable[..., Array]
    layers: Callable[[Any, Any, Observation], dict[str, Array]]
    attention: str


def vision_performer(
    config: VisionPerformerConfig, statistics: Mapping[str, Any], dtype: str = "float32"
) -> Learner:
    """The policy that `config` describes, and its loss.

    Args:
      config: its settings.
      statistics: `pose_shift` and `pose_scale` [P], by which poses are normalised, (poses - shift) * scale;
        and `action_low` and `action_high` [A], between which actions lie. They become part of the features.
      dtype: what the encoder's matrix products outside of the attention mechanism are computed in.
        Parameters, features, norms and sums are float32 in any case.
    """
    model = nnx.eval_shape(lambda: VisionPerformer(config, nnx.Rngs(0), dtype))
    graph = nnx.graphdef(model)
    head = head_of(config.head, config.head_config)
    known = {name: jnp.asarray(statistics[name], jnp.float32) for name in STATISTICS}
    for name, array in known.items():
        wanted = (config.poses if name.startswith("pose") else config.actions,)
        if array.shape != wanted:
            raise ValueError(f"statistics {name} has shape {array.shape}: it must be {wanted}")

    def init(key: Array) -> Any:
        return nnx.state(VisionPerformer(config, nnx.Rngs(params=key, features=0)), nnx.Param)

    def init_features(key: Array) -> Any:
        drawn, searched = jax.random.split(key)
        model = VisionPerformer(config, nnx.Rngs(params=0, features=drawn))
        return {"draws": nnx.state(model, Features), "search": head.draw(searched), "statistics": known}

    def encoded(
        model: VisionPerformer, features: Any, observation: Observation, see: Callable[[str, Array], None]
    ) -> Array:
        numbers = features["statistics"]
        with jax.named_scope("encoder"):
            poses = (observation["poses"] - numbers["pose_shift"]) * numbers["pose_scale"]
        return model.encode(observation["image"], poses, see)

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
        return nnx.merge(graph, parameters, features["draws"]).heads(observation["image"])

    def ranked(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model = nnx.merge(graph, parameters, features["draws"])
        return {"image": model.ranked(observation["image"])}

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

    shapes: dict[str, tuple[int, ...]] = {
        "image": (config.image, config.image, 3),
        "poses": (config.poses,),
    }
    policy = Policy(
        init,
        init_features,
        act,
        inspect,
        attended,
        ranked,
        shapes,
        config.actions,
        observation_dtypes={"image": "uint8"},
    )
    return Learner(policy, loss, layers, config.attention)
