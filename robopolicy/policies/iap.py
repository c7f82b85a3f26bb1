"""Implicit Attention Policy (Choromanski et al., 2021a; HRF, Appendix K.1).

Every pixel (or small patch) of an image is a token. Attention ranks the tokens by how much they are attended
to, and a small encoder reads the top of the ranking. The published texts leave patch size, widths and encoder
open: `IAPConfig` sets them, and `quadruped.py` has those for legs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
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
    constants_of,
    normalise,
    side_by_side,
)
from robopolicy.policies.foothold_scores import asked, at_pixels, scored
from robopolicy.policies.footholds import chosen
from robopolicy.policies.iap_config import HEADS, IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, View
from robopolicy.policies.iap_weights import Look, Weights, weights_of
from robopolicy.policies.memories import WIDTH, OfPlaces
from robopolicy.policies.multihead import unit
from robopolicy.policies.patches import colours, cut, joined, places


def level_shapes(config: IAPConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of the images that `iap` needs, by camera."""
    return {camera.name: camera.shape for camera in config.cameras if camera.reference}


def iap(config: IAPConfig, level: Mapping[str, Any]) -> PolicyFunctions:
    """The policy of `config`.

    Args:
      config: its settings.
      level: for each camera with a reference its depths [rows, columns] (m), such as those over level ground,
        to which others are relative. They become part of the features.

    Raises ValueError if `level` lacks a camera, or has an image of another shape.
    """
    blank = nnx.eval_shape(lambda: weights_of(config, nnx.Rngs(0)))
    graph, _ = nnx.split(blank)
    cameras = {camera.name: camera for camera in config.cameras}
    references = constants_of("level", level, level_shapes(config))
    shapes: dict[str, tuple[int, ...]] = {name: camera.shape for name, camera in cameras.items()}
    shapes |= {vector.name: (len(vector.entries),) for vector in config.vectors_read}
    normalised = tuple(vector.name for vector in config.vectors_read) if config.normalise else ()
    order = [config.driven.index(action) for action in config.actions]
    mirrored = {a for r in config.readers for o in r.outputs if o.mirrored for a in o.actions}
    negated = mirrored & set(config.lateral_actions)
    signs = np.array([-1.0 if action in negated else 1.0 for action in config.actions], np.float32)
    looks = [(reader, view) for reader in config.readers for view in config.views_of(reader)]
    looks = looks if config.ranks or config.asks else []
    for _, view in looks:
        if config.variant == "mask" and config.kept(view) == 1 < config.token_count(view):
            raise ValueError(
                f"keep is {config.keep}: it leaves one of {config.token_count(view)} tokens of "
                f"{view.camera!r}, and a mask gives the last one that it keeps weight 0: it must be "
                f"{2 / config.token_count(view):.3g} or more"
            )

    def init(key: Array) -> Any:
        return nnx.split(weights_of(config, nnx.Rngs(key)))[1]

    def init_features(key: Array) -> Any:
        keys = jax.random.split(key, len(config.readers))
        draws = {r.name: _draw(config, r, k) for r, k in zip(config.readers, keys, strict=True)}
        features = {"draws": draws, "level": references}
        identity = {n: {"shift": jnp.zeros(shapes[n]), "scale": jnp.ones(shapes[n])} for n in normalised}
        return {**features, "normaliser": identity} if normalised else features

    def pixels_of(features: Any, observation: Observation) -> Callable[[str], Array]:
        """The pixels [L, P] of the tokens of a camera, computed once."""
        return cache(lambda name: _pixels(config, cameras[name], observation[name], features["level"]))

    def queried(
        weights: Weights, reader: Reader, view: View, observation: Observation, seen: Array
    ) -> tuple[tuple[Array, Array], Array]:
        """Queries and keys of a reader's attention, and what its tokens show, of the pixels `seen` [L, P]."""
        choice = config.choice(reader)
        if choice is None or not config.asks:
            shown, *heads = _projected(config, reader, view, weights.looks[view.camera], seen)
            return (heads[0], heads[1]), shown
        shown = jnp.mean(seen.reshape(len(seen), config.patch**2, -1), axis=1)
        with jax.named_scope("projections"):
            return asked(config, reader, choice, weights.question, observation, shown), shown

    def inspect(
        parameters: Any, features: Any, observation: Observation, state: Any
    ) -> tuple[dict[str, Array], Any]:
        model, pixels = nnx.merge(graph, parameters), pixels_of(features, observation)
        entries = _entries(config, features, observation)
        scores: list[Array] = []
        moves: list[Array] = []
        kept: dict[str, Array] = {}
        memories: dict[str, Any] = {}
        for reader in config.readers:
            weights, inputs, parts = model[reader.name], [], []
            choice, of_each = config.choice(reader), None
            with jax.named_scope("encoder"):
                if reader.outputs[0].inputs:
                    inputs = [jnp.stack([_inputs(config, entries, output) for output in reader.outputs])]
            for view in config.views_of(reader) if config.sees else ():
                seen = pixels(view.camera)
                read, mask = seen, jnp.ones(cameras[view.camera].shape[:2], bool)
                draw = features["draws"][reader.name]
                if config.ranks:
                    read, mask = _attended(config, reader, view, weights.looks[view.camera], draw, seen)
                name = f"kept/{view.camera}"
                kept[name] = kept[name] | mask if name in kept else mask
                with jax.named_scope("encoder"):
                    if choice and config.asks:
                        heads, shown = queried(weights, reader, view, observation, seen)
                        grids = attention(config.attention).apply(draw, *heads, shown)
                        of_each = scored(config, reader, choice, weights.foothold, grids)
                    elif choice:
                        image = _image(config, view, read)
                        of_each = at_pixels(config, reader, choice, weights.foothold, observation, image)
                    else:
                        each = [_seen(config, weights, view, read, out.mirrored) for out in reader.outputs]
                        parts.append(jnp.stack([seen.ravel() for seen in each]))
            if recall := config.recall_of(reader):
                draw, tokens = features["draws"][reader.name], pixels(recall.camera)
                remembered = state[reader.name]
                of_each, memories[reader.name] = weights.memory(
                    draw, remembered, tokens, observation, inputs[0]
                )
            with jax.named_scope("encoder"):
                encoding = side_by_side([*parts, *inputs], axis=1)
                hidden = jnp.tanh(weights.hidden(encoding)) if config.hidden else encoding
            with jax.named_scope("head"):
                score = weights.head(hidden)
                if choice:
                    score = score @ choice.terms.T
                    score = score if of_each is None else score + of_each
                    moves.append(chosen(score, choice.moves, config.head == "choice").ravel())
                scores.append(score if choice else score.reshape(-1, HEADS[config.head]))
        with jax.named_scope("head"):
            every = side_by_side(scores)
            if moves:
                action = side_by_side(moves)[np.array(order)]
            else:
                every = every[np.array(order)] if order != sorted(order) else every
                action = _chosen(config, every)
            if negated:
                action = action * signs
        # What a memory reads is not masked.
        unmasked = {f"kept/{name}": jnp.full(c.shape[:2], config.sees) for name, c in cameras.items()}
        return {"action": action, "scores": every, **unmasked, **kept}, memories or state

    def act(parameters: Any, features: Any, observation: Observation, state: Any) -> tuple[Array, Any]:
        results, state = inspect(parameters, features, observation, state)
        return results["action"], state

    def attended(parameters: Any, features: Any, observation: Observation, state: Any) -> tuple[Heads, ...]:
        model, pixels = nnx.merge(graph, parameters), pixels_of(features, observation)
        heads = []
        for reader, view in looks:
            (q, k), _ = queried(model[reader.name], reader, view, observation, pixels(view.camera))
            heads.append(Heads(q[None], k[None]))
        return tuple(heads)

    def ranked(parameters: Any, features: Any, observation: Observation, state: Any) -> dict[str, Array]:
        heads, rankings = attended(parameters, features, observation, state), dict[str, list[Array]]()
        for (reader, view), (q, k) in zip(looks, heads, strict=True):
            ranking = attention(config.attention).rank(features["draws"][reader.name], q[0], k[0])
            ranking = ranking * (k.shape[1] / q.shape[1])  # `query` has not as many queries as tokens
            rankings.setdefault(view.camera, []).append(ranking.reshape(config.grid(view)))
        return {name: sum(each[1:], each[0]) / len(each) for name, each in rankings.items()}

    def remembered(parameters: Any, features: Any, observation: Observation, state: Any) -> dict[str, Array]:
        model, views = nnx.merge(graph, parameters), {}
        for reader in config.readers:
            recall = config.recall_of(reader)
            if recall and isinstance(model[reader.name].memory, OfPlaces):
                memory, draw = model[reader.name].memory, features["draws"][reader.name]
                views[recall.camera] = memory.around_robot(draw, state[reader.name], observation)
        return views

    def questions(parameters: Any, features: Any, observation: Observation, state: Any) -> dict[str, Any]:
        model, found = nnx.merge(graph, parameters), {}
        for reader in config.readers:
            if config.recall_of(reader) and config.attends:
                memory = model[reader.name].memory
                found[reader.name] = {"queries": memory.queries(observation), "least": memory.least}
        return found

    def init_state(features: Any) -> Any:
        draws = features["draws"]
        remembering = [reader.name for reader in config.readers if config.recall_of(reader)]
        return {name: blank[name].memory.start(draws[name]) for name in remembering} or ()

    dtypes = {name: camera.dtype for name, camera in cameras.items() if camera.dtype != "float32"}
    return PolicyFunctions(
        init,
        init_features,
        act,
        inspect,
        attended,
        ranked,
        shapes,
        len(order),
        normalised,
        dtypes,
        init_state,
        remembered,
        questions,
    )


def _draw(config: IAPConfig, reader: Reader, key: Array) -> Any:
    """The random projections of a reader's attention; () for a reader without it."""
    if not (config.attends and (reader.views or config.recall_of(reader))):
        return ()
    return attention(config.attention).init(key, WIDTH if config.recall_of(reader) else config.head_dim)


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
        return cut(jnp.clip(depths / camera.scale, camera.lowest, 1.0), config.patch)


def _projected(
    config: IAPConfig, reader: Reader, view: View, look: Look, pixels: Array
) -> tuple[Array, Array, Array]:
    """Tokens with their places, queries and keys, of `pixels` [L, P]."""
    at = places(config.grid(view))
    # With mirror images, the distance from the middle: all outputs share one ranking.
    sides = np.abs(at[:, 1]) if any(output.mirrored for output in reader.outputs) else at[:, 1]
    fixed = np.stack([at[:, 0], sides, np.ones(len(at), np.float32)], axis=1)
    with jax.named_scope("projections"):
        tokens = jnp.concatenate([pixels, fixed], axis=1)
        return tokens, unit(look.query(tokens)), unit(look.key(tokens))


def _attended(
    config: IAPConfig, reader: Reader, view: View, look: Look, draw: Any, pixels: Array
) -> tuple[Array, Array]:
    """What the encoder may read of `pixels` [L, P], and which pixels [H, W] the attention keeps."""
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
        # A token fades in just above the last rank. Which of two nearly equal tokens is the last one kept
        # differs with the rounding of a backend; with weight 0 it changes nothing else.
        weight = jnp.clip((ranking - leading[-1]) / config.fade, 0.0, 1.0)
        return pixels * weight[:, None], by_pixel


def _seen(config: IAPConfig, weights: Weights, view: View, read: Array, mirrored: bool) -> Array:
    """What an output reads of a camera; the same for a scene and, if `mirrored`, its mirror image."""
    if config.variant == "rank":
        return read * np.array([1.0] * (read.shape[1] - 1) + [-1.0 if mirrored else 1.0], np.float32)
    image = _image(config, view, read)
    (first, last), columns = config.region(view, config.patch), image.shape[1]
    part = image[:, columns - last : columns - first] if mirrored else image[:, first:last]
    if config.encoder == "cnn":
        return weights.convolutions[view.camera](part[:, ::-1] if mirrored else part)
    if config.encoder == "relu":
        part = jax.nn.relu(weights.pixels[view.camera](part))
    if view.cells is None:
        return jnp.mean(part, axis=1)
    rows, across = view.cells
    part = part[:, ::-1] if mirrored else part
    cells = part.reshape(rows, part.shape[0] // rows, across, part.shape[1] // across, -1)
    return jnp.mean(cells, axis=(1, 3))


def _image(config: IAPConfig, view: View, read: Array) -> Array:
    """What the encoder reads of a camera as an image: of pixels for `mask`, of tokens for `trans`."""
    if config.variant == "trans":
        return read.reshape(*config.grid(view), -1)
    image = joined(read, config.camera(view.camera).shape, config.patch)
    return image.reshape(*image.shape[:2], -1)


def _entries(config: IAPConfig, features: Any, observation: Observation) -> dict[str, tuple[Array, int]]:
    """The vector and the index in it of every entry; vectors are normalised."""
    entries = {}
    for vector in config.vectors_read:
        values = observation[vector.name]
        if config.normalise:
            with jax.named_scope("normaliser"):
                values = normalise(features["normaliser"][vector.name], values)
        entries.update({entry: (values, index) for index, entry in enumerate(vector.entries)})
    return entries


def _inputs(config: IAPConfig, entries: Mapping[str, tuple[Array, int]], output: Output) -> Array:
    """The inputs of an output, those of a mirrored one as in a mirror."""
    negated = config.lateral_inputs if output.mirrored else ()
    picked = ((name, entries[name][0][entries[name][1]]) for name in output.inputs)
    return jnp.stack([-value if name in negated else value for name, value in picked])
