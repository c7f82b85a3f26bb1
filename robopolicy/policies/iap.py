"""Implicit Attention Policy (Choromanski et al., 2021a; HRF, Appendix K.1).

Every pixel (or small patch) of a depth image is a token. Attention ranks the tokens by how much they are
attended to, the top of the ranking is kept, and a small encoder reads what is left. The published texts
leave patch size, widths and encoder open; ours are the defaults of `IAPConfig`, chosen for legs:

- front legs read the front camera, hind legs the belly camera;
- a right leg reads the mirror image of what a left leg reads, with the same weights;
- a leg chooses among three footholds, since a map that must jump at the middle of a gap has to be a choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array
from numpy.typing import NDArray

from robopolicy.attention import Attention, attention
from robopolicy.naming import one_of
from robopolicy.policies.base import Heads, Observation, Policy, identity_normaliser, normalise
from robopolicy.policies.multihead import unit

LEGS = ("FR", "FL", "RR", "RL")
RIGHT = ("FR", "RR")
VIEWS = {"front": ("front_depth", ("FR", "FL")), "hind": ("belly_depth", ("RR", "RL"))}
VARIANTS = ("mask", "rank", "trans")
HEADS = {"choice": 3, "tanh": 1}
NO_VISION = "none"
LATERAL = ("roll", "angular_velocity_x", "angular_velocity_z", "velocity_y")  # change sign in a mirror


@dataclass(frozen=True)
class IAPConfig:
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism; `none` makes a policy that is given no image, the control that
        tells what vision is worth.
      proprioception: name of every entry of the proprioception vector, in order.
      image: rows and columns of both depth images.
      variant: `mask` keeps the image and zeroes every token outside the top; `rank` hands the top tokens to
        the encoder in order of rank, with their places; `trans` hands on ordinary attention output.
      patch: side of a token, in pixels.
      head_dim: width of queries and keys.
      keep: share of the tokens that `mask` and `rank` keep.
      fade: how far above the last kept rank a token counts in full; a token attended to like any other has
        rank one.
      columns: the image columns [first, last) that the encoder of a left leg reads.
      depth_scale: depth beyond level ground that counts as one, metres.
      leg_inputs: proprioception that a leg's encoder is given; {leg} is the leg's name.
      hidden: width of a hidden layer before the head, 0 for none.
      head: `choice` of one of three footholds, or one continuous `tanh`.
      spread: standard deviation of the random part of the first query and key projections.
      calm: what the middle foothold's score leads by at first, so that an untrained policy walks.
      normalise: whether proprioception is normalised by running statistics.
    """

    attention: str
    proprioception: tuple[str, ...]
    image: tuple[int, int] = (24, 32)
    variant: str = "mask"
    patch: int = 2
    head_dim: int = 8
    keep: float = 0.5
    fade: float = 0.05
    columns: tuple[int, int] = (4, 16)
    depth_scale: float = 0.2
    leg_inputs: tuple[str, ...] = ("velocity_x", "nominal_landing_{leg}", "pitch")
    hidden: int = 0
    head: str = "choice"
    spread: float = 0.2
    calm: float = 0.3
    normalise: bool = False

    def __post_init__(self) -> None:
        one_of("variant", self.variant, VARIANTS)
        one_of("head", self.head, HEADS)
        rows, columns = self.image
        if self.patch < 1 or rows % self.patch or columns % self.patch:
            raise ValueError(
                f"patch is {self.patch}: it must divide the image's {rows} rows and {columns} columns"
            )
        if not 0.0 < self.keep <= 1.0:
            raise ValueError(f"keep is {self.keep}: it must be a share of the tokens in (0, 1]")
        if not self.fade > 0.0:
            raise ValueError(f"fade is {self.fade}: it must be above 0")
        if self.head_dim < 1:
            raise ValueError(f"head_dim is {self.head_dim}: it must be 1 or more")
        if self.hidden < 0:
            raise ValueError(f"hidden is {self.hidden}: it must be 0 or more")
        for name in self.leg_inputs:
            for leg in LEGS:
                one_of("leg_inputs", name.format(leg=leg), self.proprioception)
        if self.sees:
            attention(self.attention)

    @property
    def sees(self) -> bool:
        """Whether it is given images."""
        return self.attention != NO_VISION

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return self.image[0] // self.patch, self.image[1] // self.patch

    @property
    def tokens(self) -> int:
        """How many tokens both images are cut into."""
        return len(VIEWS) * self.grid[0] * self.grid[1]

    @property
    def kept(self) -> int:
        """How many tokens `mask` and `rank` keep."""
        return max(1, round(self.keep * self.grid[0] * self.grid[1]))

    @property
    def leg_columns(self) -> tuple[int, int]:
        """First and one past the last column of tokens that a left leg reads."""
        return self.columns[0] // self.patch, -(-self.columns[1] // self.patch)

    @property
    def encoded(self) -> int:
        """How many numbers a leg's encoder reads from its camera."""
        if not self.sees:
            return 0
        if self.variant == "rank":
            return self.kept * (self.patch**2 + 2)
        return self.grid[0] * self.head_dim if self.variant == "trans" else self.image[0]


class View(nnx.Module):
    """One camera and the two legs that read it, right leg first."""

    def __init__(self, config: IAPConfig, rngs: nnx.Rngs) -> None:
        tokens = config.patch**2 + 3
        width = config.encoded + len(config.leg_inputs)
        linear = partial(nnx.Linear, use_bias=False, rngs=rngs)
        if config.sees:
            spread = nnx.initializers.normal(config.spread)
            self.query = linear(tokens, config.head_dim, kernel_init=spread)
            self.key = linear(tokens, config.head_dim, kernel_init=spread)
            self._look_for_gaps(config, rngs)
            if config.variant == "trans":
                self.value = linear(tokens, config.head_dim)
        if config.hidden:
            self.hidden = nnx.Linear(width, config.hidden, rngs=rngs)
            width = config.hidden
        lead = jnp.zeros(HEADS[config.head]).at[0].set(config.calm if config.head == "choice" else 0.0)
        self.head = nnx.Linear(
            width,
            HEADS[config.head],
            kernel_init=nnx.initializers.zeros,
            bias_init=lambda *_: lead,
            rngs=rngs,
        )

    def _look_for_gaps(self, config: IAPConfig, rngs: nnx.Rngs) -> None:
        """Start with keys of deep tokens along what every query asks for, and keys of level ones against it.

        From random projections it is luck whether a policy sees the gaps at all.
        """
        direction = jax.random.normal(rngs.params(), (config.head_dim,))
        direction = direction / jnp.linalg.norm(direction)
        pixels = config.patch**2
        self.query.kernel[...] = self.query.kernel[...].at[-1].add(direction)
        tilt = jnp.zeros(pixels + 3).at[:pixels].set(2.0 / pixels).at[-1].set(-1.0)
        self.key.kernel[...] = self.key.kernel[...] + tilt[:, None] * direction


class IAP(nnx.Module):
    """The trainable part; features are given to it at every call."""

    def __init__(self, config: IAPConfig, rngs: nnx.Rngs) -> None:
        self.front = View(config, rngs)
        self.hind = View(config, rngs)


def iap(config: IAPConfig, level_depth: Mapping[str, Any]) -> Policy:
    """The policy that `config` describes.

    Args:
      config: its settings.
      level_depth: what each camera sees over level ground, [rows, columns] (m) by name; policies see
        depths relative to it. It becomes part of the features.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: IAP(config, nnx.Rngs(0))))
    mechanism = attention(config.attention) if config.sees else None
    level = {camera: jnp.asarray(level_depth[camera], jnp.float32) for camera, _ in VIEWS.values()}
    for camera, image in level.items():
        if image.shape != config.image:
            raise ValueError(f"level_depth of {camera} has shape {image.shape}: it must be {config.image}")

    shapes: dict[str, tuple[int, ...]] = {camera: config.image for camera, _ in VIEWS.values()}
    shapes["proprioception"] = (len(config.proprioception),)
    normalised = ("proprioception",) if config.normalise else ()

    def init(key: Array) -> Any:
        return nnx.split(IAP(config, nnx.Rngs(key)))[1]

    def init_features(key: Array) -> Any:
        keys = jax.random.split(key, len(VIEWS))
        draws = {
            view: mechanism.init(k, config.head_dim) if mechanism else ()
            for view, k in zip(VIEWS, keys, strict=True)
        }
        frozen = {"draws": draws, "level": level}
        return {**frozen, "normaliser": identity_normaliser(shapes, normalised)} if normalised else frozen

    def inspect(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model = nnx.merge(graph, parameters)
        proprioception = observation["proprioception"]
        if normalised:
            with jax.named_scope("normaliser"):
                proprioception = normalise(features["normaliser"]["proprioception"], proprioception)
        scores: list[Array] = []  # views and their legs stand in the order of LEGS
        kept: dict[str, Array] = {}
        for name, (camera, legs) in VIEWS.items():
            view = getattr(model, name)
            with jax.named_scope("encoder"):
                read = jnp.stack([_felt(config, proprioception, leg) for leg in legs])
            if mechanism is None:
                kept[f"kept/{camera}"] = jnp.zeros(config.image, bool)
            else:
                pixels = _relative(config, observation[camera], features["level"][camera])
                image, kept[f"kept/{camera}"] = _attended(
                    config, mechanism, view, features["draws"][name], pixels
                )
                with jax.named_scope("encoder"):
                    seen = [_seen(config, image, right=leg in RIGHT).ravel() for leg in legs]
                    read = jnp.concatenate([jnp.stack(seen), read], axis=1)
            with jax.named_scope("encoder"):
                hidden = jnp.tanh(view.hidden(read)) if config.hidden else read
            with jax.named_scope("head"):
                scores.append(view.head(hidden))
        with jax.named_scope("head"):
            every = jnp.concatenate(scores)
            return {"action": _chosen(config, every), "scores": every, **kept}

    def act(parameters: Any, features: Any, observation: Observation) -> Array:
        return inspect(parameters, features, observation)["action"]

    def attended(parameters: Any, features: Any, observation: Observation) -> tuple[Heads, ...]:
        model, found = nnx.merge(graph, parameters), []
        for name, (camera, _) in VIEWS.items() if config.sees else ():
            pixels = _relative(config, observation[camera], features["level"][camera])
            _, q, k = _projected(config, getattr(model, name), pixels)
            found.append(Heads(q[None], k[None]))
        return tuple(found)

    def ranked(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        if mechanism is None:
            return {}
        heads = attended(parameters, features, observation)
        return {
            camera: mechanism.rank(features["draws"][name], q[0], k[0]).reshape(config.grid)
            for (name, (camera, _)), (q, k) in zip(VIEWS.items(), heads, strict=True)
        }

    return Policy(init, init_features, act, inspect, attended, ranked, shapes, len(LEGS), normalised)


def _chosen(config: IAPConfig, scores: Array) -> Array:
    """Scores [4, footholds] to actions [4]."""
    if config.head == "tanh":
        return jnp.tanh(scores[:, 0])
    # Foothold 0 is the middle one, so that it wins ties; then the one behind and the one ahead.
    best = jnp.argmax(scores, axis=1)
    return (best == 2).astype(jnp.float32) - (best == 1).astype(jnp.float32)


def _relative(config: IAPConfig, image: Array, level: Array) -> Array:
    """Depths [H, W] against those over level ground, in [-1, 1], as tokens [L, p * p]."""
    with jax.named_scope("patches"):
        return _patches(jnp.clip((image - level) / config.depth_scale, -1.0, 1.0), config)


def _patches(image: Array, config: IAPConfig) -> Array:
    """An image [H, W] as tokens [L, patch * patch], row by row."""
    (rows, columns), p = config.grid, config.patch
    return image.reshape(rows, p, columns, p).transpose(0, 2, 1, 3).reshape(rows * columns, p * p)


def _image(patches: Array, config: IAPConfig) -> Array:
    """The image [H, W] that `_patches` cut up."""
    (rows, columns), p = config.grid, config.patch
    return patches.reshape(rows, columns, p, p).transpose(0, 2, 1, 3).reshape(config.image)


def _places(config: IAPConfig) -> NDArray[np.float32]:
    """Row and column of every token, [L, 2], from -1 (far, left) to 1 (near, right)."""
    centres = [(2.0 * np.arange(count) + 1.0) / count - 1.0 for count in config.grid]
    grid = np.meshgrid(*centres, indexing="ij")
    return np.stack(grid, axis=-1).reshape(-1, 2).astype(np.float32)


def _projected(config: IAPConfig, view: View, pixels: Array) -> tuple[Array, Array, Array]:
    """Tokens with their places, queries and keys, of `pixels` [L, p * p]."""
    places = _places(config)
    # The distance from the middle, not the side: what one leg may look at, its mirror leg may too.
    fixed = np.stack([places[:, 0], np.abs(places[:, 1]), np.ones(len(places), np.float32)], axis=1)
    with jax.named_scope("projections"):
        tokens = jnp.concatenate([pixels, fixed], axis=1)
        return tokens, unit(view.query(tokens)), unit(view.key(tokens))


def _attended(
    config: IAPConfig, mechanism: Attention, view: View, draw: Any, pixels: Array
) -> tuple[Array, Array]:
    """What the encoder may read of `pixels` [L, p * p], and which pixels [H, W] the attention kept."""
    tokens, q, k = _projected(config, view, pixels)
    if config.variant == "trans":
        with jax.named_scope("projections"):
            v = view.value(tokens)
        return mechanism.apply(draw, q, k, v), jnp.ones(config.image, bool)
    ranking = mechanism.rank(draw, q, k)
    with jax.named_scope("mask"):
        leading, top = jax.lax.top_k(ranking, config.kept)
        kept = jnp.zeros(len(pixels)).at[top].set(1.0)
        rows, columns = config.grid
        by_pixel = jnp.repeat(jnp.repeat(kept.reshape(rows, columns), config.patch, 0), config.patch, 1) > 0.5
        if config.variant == "rank":
            return jnp.concatenate([pixels, _places(config)], axis=1)[top], by_pixel
        if config.kept == len(pixels):
            return pixels, by_pixel
        # Just above the last rank a token fades in. Which of two nearly equal tokens is the last one to be
        # kept differs with the rounding of a backend; so that nothing else does, it must weigh nothing.
        weight = jnp.clip((ranking - leading[-1]) / config.fade, 0.0, 1.0)
        return pixels * weight[:, None], by_pixel


def _seen(config: IAPConfig, read: Array, *, right: bool) -> Array:
    """What a leg sees of its camera, the same for a scene and its mirror image on the other side."""
    if config.variant == "rank":
        return read * np.array([1.0] * (read.shape[1] - 1) + [-1.0 if right else 1.0], np.float32)
    if config.variant == "mask":
        image, (first, last) = _image(read, config), config.columns
    else:
        image, (first, last) = read.reshape(*config.grid, -1), config.leg_columns
    columns = image.shape[1]
    half = image[:, columns - last : columns - first] if right else image[:, first:last]
    return jnp.mean(half, axis=1)


def _felt(config: IAPConfig, proprioception: Array, leg: str) -> Array:
    """The proprioception of one leg, mirrored for a right one."""
    felt = []
    for template in config.leg_inputs:
        name = template.format(leg=leg)
        value = proprioception[config.proprioception.index(name)]
        lateral = name in LATERAL or (name.startswith("foot_") and name.endswith("_y"))
        felt.append(-value if lateral and leg in RIGHT else value)
    return jnp.stack(felt)
