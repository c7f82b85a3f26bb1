"""What a policy is to everything else: pure functions of parameters, features and one observation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

Observation = Mapping[str, Array]


class Heads(NamedTuple):
    """Queries and keys [H, L, D] of H heads of attention, as the mechanism is given them."""

    q: Array
    k: Array


class PolicyFunctions(NamedTuple):
    """A policy; all of it is pure and can be compiled.

    Attributes:
      init: key -> parameters, a pytree that training changes.
      init_features: key -> features, a pytree that nothing changes after: drawn projections and constants.
      act: (parameters, features, observation) -> action [A] in [-1, 1].
      inspect: (parameters, features, observation) -> `action` and what led to it, by name: `scores`, and
        for every camera `kept/CAMERA`, the pixels [H, W] that the attention kept. For pictures and checks.
      attended: (parameters, features, observation) -> the queries and keys of all heads, in the order of a
        step; none for a policy without attention.
      ranked: (parameters, features, observation) -> how much each token of an image is attended to, [rows,
        columns] of tokens by the image's name: what `Attention.rank` tells, whose mean is 1, on average over
        heads; none for a policy without attention. For pictures.
      observation_shapes: shape of each observation, by name.
      action_size: A.
      normalised: the vector observations that it normalises by running statistics, which are no parameters
        but grow with training: features["normaliser"][name] holds their `shift` and `scale`.
      observation_dtypes: dtype of those observations that are not float32.
    """

    init: Callable[[Array], Any]
    init_features: Callable[[Array], Any]
    act: Callable[[Any, Any, Observation], Array]
    inspect: Callable[[Any, Any, Observation], dict[str, Array]]
    attended: Callable[[Any, Any, Observation], tuple[Heads, ...]]
    ranked: Callable[[Any, Any, Observation], dict[str, Array]]
    observation_shapes: dict[str, tuple[int, ...]]
    action_size: int
    normalised: tuple[str, ...] = ()
    observation_dtypes: Mapping[str, str] = MappingProxyType({})

    @property
    def observation(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of every observation."""
        return {
            name: jax.ShapeDtypeStruct(shape, self.observation_dtypes.get(name, "float32"))
            for name, shape in self.observation_shapes.items()
        }


KEY = jax.eval_shape(lambda: jax.random.key(0))  # the shape of a key, for what is never drawn
CLIP = 5.0  # normalised observations lie within


def identity_normaliser(policy_shapes: Mapping[str, tuple[int, ...]], names: tuple[str, ...]) -> Any:
    """features["normaliser"] that changes nothing but what lies outside of the clip."""
    return {n: {"shift": jnp.zeros(policy_shapes[n]), "scale": jnp.ones(policy_shapes[n])} for n in names}


def normalise(normaliser: Mapping[str, Array], values: Array) -> Array:
    """(values - shift) * scale, clipped to `CLIP`."""
    return jnp.clip((values - normaliser["shift"]) * normaliser["scale"], -CLIP, CLIP)


def with_normaliser(policy: PolicyFunctions, features: Any, normaliser: Array | None) -> Any:
    """`features` with other statistics: shift and scale of every normalised observation in turn, flat [2K].

    None leaves `features` as they are.
    """
    if normaliser is None:
        return features
    known, at = {}, 0
    for name in policy.normalised:
        (width,) = policy.observation_shapes[name]
        shift, scale = normaliser[at : at + width], normaliser[at + width : at + 2 * width]
        known[name] = {"shift": shift, "scale": scale}
        at += 2 * width
    return {**features, "normaliser": known}


def normaliser_size(policy: PolicyFunctions) -> int:
    """Length 2K of the vector that `with_normaliser` reads, 0 for a policy that normalises nothing."""
    return sum(2 * policy.observation_shapes[name][0] for name in policy.normalised)


def flatten(parameters: Any) -> Array:
    """All parameters as one vector [P], in the order that `unflatten` reads."""
    return ravel_pytree(parameters)[0]


def unflatten(policy: PolicyFunctions) -> Callable[[Any], Any]:
    """The function that turns a vector [P] back into the parameters of `policy`."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(policy.init, KEY))
    ends = np.cumsum([leaf.size for leaf in leaves])

    def inverse(vector: Any) -> Any:
        parts = [
            vector[end - leaf.size : end].reshape(leaf.shape) for leaf, end in zip(leaves, ends, strict=True)
        ]
        return jax.tree.unflatten(structure, parts)

    return inverse


def parameter_shapes(policy: PolicyFunctions) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its path, in the order of the flat vector."""
    shapes = jax.eval_shape(policy.init, KEY)
    leaves, _ = jax.tree_util.tree_flatten_with_path(shapes)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}


def parameter_count(policy: PolicyFunctions) -> int:
    """Number of trainable parameters."""
    shapes = jax.eval_shape(policy.init, KEY)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))
