"""Implicit Attention Policy (Choromanski et al., 2021a; HRF, Appendix K.1).

Every pixel (or small patch) of an image is a token. Attention ranks the tokens by how much they are attended
to, the top of the ranking is kept, and a small encoder reads what is left. The published texts leave patch
size, widths and encoder open: `IAPConfig` sets them, and `quadruped.py` has those for legs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array

from robopolicy.attention import attention
from robopolicy.policies.base import (
    Heads,
    Observation,
    PolicyFunctions,
    identity_normaliser,
    normalise,
)
from robopolicy.policies.iap_config import HEADS, IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, View
from robopolicy.policies.iap_weights import Look, weights_of
from robopolicy.policies.multihead import unit
from robopolicy.policies.patches import colours, cut, joined, places


def iap(config: IAPConfig, level: Mapping[str, Any]) -> PolicyFunctions:
    """The policy that `config` describes.

    Args:
      config: its settings.
      level: for each camera with a reference the depths [rows, columns] (m) that others are relative to, such
        as those over level ground. They become part of the features.

    Raises ValueError where `level` lacks a camera, or has an image of another shape.
    """
    graph, _ = nnx.split(nnx.eval_shape(lambda: weights_of(config, nnx.Rngs(0))))
    cameras = {camera.name: camera for camera in config.cameras}
    references = {name: _reference(camera, level) for name, camera in cameras.items() if camera.reference}
    shapes: dict[str, tuple[int, ...]] = {name: camera.shape for name, camera in cameras.items()}
    shapes |= {vector.name: (len(vector.entries),) for vector in config.vectors}
    normalised = tuple(vector.name for vector in config.vectors) if config.normalise else ()
    order = [config.driven.index(action) for action in config.actions]
    signs = np.array([-1.0 if a in _negated(config) else 1.0 for a in config.actions], np.float32)

    def init(key: Array) -> Any:
        return nnx.split(weights_of(config, nnx.Rngs(key)))[1]

    def init_features(key: Array) -> Any:
        keys = jax.random.split(key, len(config.readers))
        draws = {
            reader.name: _draw(config, reader, k) for reader, k in zip(config.readers, keys, strict=True)
        }
        frozen = {"draws": draws, "level": references}
        return {**frozen, "normaliser": identity_normaliser(shapes, normalised)} if normalised else frozen

    def tokens(features: Any, observation: Observation) -> Callable[[str], Array]:
        """The pixels [L, P] of each camera's tokens, computed once."""
        found: dict[str, Array] = {}

        def of(name: str) -> Array:
            if name not in found:
                found[name] = _pixels(config, cameras[name], observation[name], features["level"])
            return found[name]

        return of

    def inspect(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        model, pixels = nnx.merge(graph, parameters), tokens(features, observation)
        entries = _entries(config, features, observation)
        scores: list[Array] = []
        kept: dict[str, Array] = {}
        for reader in config.readers:
            weights, felt, seen = model[reader.name], [], []
            with jax.named_scope("encoder"):
                if reader.outputs[0].inputs:
                    felt = [jnp.stack([_felt(config, entries, output) for output in reader.outputs])]
            for view in reader.views if config.sees else ():
                look, draw = weights.looks[view.camera], features["draws"][reader.name]
                read, mask = _attended(config, reader, view, look, draw, pixels(view.camera))
                name = f"kept/{view.camera}"
                kept[name] = kept[name] | mask if name in kept else mask
                with jax.named_scope("encoder"):
                    each = [_seen(config, view, read, output.mirrored).ravel() for output in reader.outputs]
                    seen.append(jnp.stack(each))
            with jax.named_scope("encoder"):
                parts = [*seen, *felt]
                encoding = jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
                hidden = jnp.tanh(weights.hidden(encoding)) if config.hidden else encoding
            with jax.named_scope("head"):
                scores.append(weights.head(hidden).reshape(-1, HEADS[config.head]))
        with jax.named_scope("head"):
            every = jnp.concatenate(scores) if len(scores) > 1 else scores[0]
            if order != sorted(order):
                every = every[np.array(order)]
            action = _chosen(config, every)
            if (signs < 0).any():
                action = action * signs
        blind = {f"kept/{name}": jnp.zeros(c.shape[:2], bool) for name, c in cameras.items()}
        return {"action": action, "scores": every, **(kept if config.sees else blind)}

    def act(parameters: Any, features: Any, observation: Observation) -> Array:
        return inspect(parameters, features, observation)["action"]

    def attended(parameters: Any, features: Any, observation: Observation) -> tuple[Heads, ...]:
        model, found = nnx.merge(graph, parameters), []
        pixels = tokens(features, observation)
        for reader, view in _looks(config):
            look = model[reader.name].looks[view.camera]
            _, q, k = _projected(config, reader, view, look, pixels(view.camera))
            found.append(Heads(q[None], k[None]))
        return tuple(found)

    def ranked(parameters: Any, features: Any, observation: Observation) -> dict[str, Array]:
        if not config.sees:
            return {}
        heads, found = attended(parameters, features, observation), dict[str, list[Array]]()
        for (reader, view), (q, k) in zip(_looks(config), heads, strict=True):
            ranking = attention(config.attention).rank(features["draws"][reader.name], q[0], k[0])
            found.setdefault(view.camera, []).append(ranking.reshape(config.grid(view)))
        return {name: sum(each[1:], each[0]) / len(each) for name, each in found.items()}

    return PolicyFunctions(
        init,
        init_features,
        act,
        inspect,
        attended,
        ranked,
        shapes,
        len(config.actions),
        normalised,
        {name: camera.dtype for name, camera in cameras.items() if camera.dtype != "float32"},
    )


def _reference(camera: Camera, level: Mapping[str, Any]) -> Array:
    if camera.name not in level:
        raise ValueError(f"level has no image of {camera.name!r}: it must have one, {list(camera.shape)}")
    image = jnp.asarray(level[camera.name], jnp.float32)
    if image.shape != camera.shape:
        raise ValueError(f"level of {camera.name} has shape {image.shape}: it must be {camera.shape}")
    return image


def _draw(config: IAPConfig, reader: Reader, key: Array) -> Any:
    """What a reader's attention is computed with; () for one that sees nothing."""
    return attention(config.attention).init(key, config.head_dim) if config.sees and reader.views else ()


def _negated(config: IAPConfig) -> set[str]:
    """Actions that a mirrored output gives with the other sign."""
    mirrored = {a for r in config.readers for o in r.outputs if o.mirrored for a in o.actions}
    return mirrored & set(config.lateral_actions)


def _looks(config: IAPConfig) -> list[tuple[Reader, View]]:
    """Who attends to what, in the order of a step."""
    return [(reader, view) for reader in config.readers for view in reader.views] if config.sees else []


def _chosen(config: IAPConfig, scores: Array) -> Array:
    """Scores [A, 3] or [A, 1] to actions [A]."""
    if config.head == "tanh":
        return jnp.tanh(scores[:, 0])
    # Choice 0 is the middle one, so that it wins ties; then -1 and 1.
    best = jnp.argmax(scores, axis=1)
    return (best == 2).astype(jnp.float32) - (best == 1).astype(jnp.float32)


def _pixels(config: IAPConfig, camera: Camera, image: Array, level: Mapping[str, Array]) -> Array:
    """An image as tokens [L, P], their numbers in [-1, 1]."""
    with jax.named_scope("patches"):
        if camera.channels > 1:
            return colours(cut(image, config.patch))
        depths = image - level[camera.name] if camera.reference else image
        return cut(jnp.clip(depths / camera.scale, -1.0, 1.0), config.patch)


def _projected(
    config: IAPConfig, reader: Reader, view: View, look: Look, pixels: Array
) -> tuple[Array, Array, Array]:
    """Tokens with their places, queries and keys, of `pixels` [L, P]."""
    at = places(config.grid(view))
    # Where outputs are mirror images, the distance from the middle: what one looks at, the other may too.
    sides = np.abs(at[:, 1]) if any(output.mirrored for output in reader.outputs) else at[:, 1]
    fixed = np.stack([at[:, 0], sides, np.ones(len(at), np.float32)], axis=1)
    with jax.named_scope("projections"):
        tokens = jnp.concatenate([pixels, fixed], axis=1)
        return tokens, unit(look.query(tokens)), unit(look.key(tokens))


def _attended(
    config: IAPConfig, reader: Reader, view: View, look: Look, draw: Any, pixels: Array
) -> tuple[Array, Array]:
    """What the encoder may read of `pixels` [L, P], and which pixels [H, W] the attention kept."""
    tokens, q, k = _projected(config, reader, view, look, pixels)
    mechanism = attention(config.attention)
    grid, patch, count = config.grid(view), config.patch, config.kept(view)
    if config.variant == "trans":
        with jax.named_scope("projections"):
            v = look.value(tokens)
        return mechanism.apply(draw, q, k, v), jnp.ones([patch * side for side in grid], bool)
    ranking = mechanism.rank(draw, q, k)
    with jax.named_scope("mask"):
        leading, top = jax.lax.top_k(ranking, count)
        kept = jnp.zeros(len(pixels)).at[top].set(1.0)
        by_pixel = jnp.repeat(jnp.repeat(kept.reshape(grid), patch, 0), patch, 1) > 0.5
        if config.variant == "rank":
            return jnp.concatenate([pixels, places(grid)], axis=1)[top], by_pixel
        if count == len(pixels):
            return pixels, by_pixel
        # Just above the last rank a token fades in. Which of two nearly equal tokens is the last one to be
        # kept differs with the rounding of a backend; so that nothing else does, it must weigh nothing.
        weight = jnp.clip((ranking - leading[-1]) / config.fade, 0.0, 1.0)
        return pixels * weight[:, None], by_pixel


def _seen(config: IAPConfig, view: View, read: Array, mirrored: bool) -> Array:
    """What an output sees of a camera, the same for a scene and, where `mirrored`, its mirror image."""
    if config.variant == "rank":
        return read * np.array([1.0] * (read.shape[1] - 1) + [-1.0 if mirrored else 1.0], np.float32)
    if config.variant == "mask":
        image = joined(read, config.camera(view.camera).shape, config.patch)
    else:
        image = read.reshape(*config.grid(view), -1)
    (first, last), columns = config.region(view), image.shape[1]
    part = image[:, columns - last : columns - first] if mirrored else image[:, first:last]
    if view.cells is None:
        return jnp.mean(part, axis=1)
    rows, across = view.cells
    part = part[:, ::-1] if mirrored else part
    cells = part.reshape(rows, part.shape[0] // rows, across, part.shape[1] // across, -1)
    return jnp.mean(cells, axis=(1, 3))


def _entries(config: IAPConfig, features: Any, observation: Observation) -> dict[str, tuple[Array, int]]:
    """The vector and the index in it of every entry; vectors are normalised."""
    found = {}
    for vector in config.vectors:
        values = observation[vector.name]
        if config.normalise:
            with jax.named_scope("normaliser"):
                values = normalise(features["normaliser"][vector.name], values)
        found.update({entry: (values, index) for index, entry in enumerate(vector.entries)})
    return found


def _felt(config: IAPConfig, entries: Mapping[str, tuple[Array, int]], output: Output) -> Array:
    """The inputs of an output, of a mirrored one as in a mirror."""
    felt = []
    for name in output.inputs:
        values, index = entries[name]
        value = values[index]
        felt.append(-value if output.mirrored and name in config.lateral_inputs else value)
    return jnp.stack(felt)
