"""The interface of policies: pure functions of parameters, features, one observation and a state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import wraps
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

Observation = Mapping[str, Array]


class Heads(NamedTuple):
    """Queries and keys [H, L, D] of H heads of attention, as the mechanism reads them."""

    q: Array
    k: Array


def nothing(*arguments: Any) -> dict[str, Array]:
    """No arrays: the answer of a policy that lacks what the caller asks for."""
    return {}


def stateless(features: Any) -> Any:
    """The empty state of a policy without one."""
    return ()


class PolicyFunctions(NamedTuple):
    """The pure functions of a policy; all of them can be compiled.

    A state is a pytree of arrays, such as the memory of a recurrent policy. An episode begins with that of
    `init_state`, and each step takes the state that the step before it returned. Its shapes and dtypes stay
    the same. A policy without state has the empty one, `()`, and returns it unchanged.

    Attributes:
      init: key -> parameters, a pytree that training changes.
      init_features: key -> features, a pytree of constants and random projections that stay the same.
      act: (parameters, features, observation, state) -> action [A] in [-1, 1], and the next state.
      inspect: (parameters, features, observation, state) -> results by name, and the next state. The results
        are `action`, the `scores` that determine it, and, of an Implicit Attention Policy, `kept/CAMERA`, the
        pixels [H, W] of each camera that the attention keeps.
      attended: (parameters, features, observation, state) -> queries and keys of all heads, in order of
        computation; () for a policy without attention.
      ranked: (parameters, features, observation, state) -> for each image, how much its tokens are attended
        to, [rows, columns]: `Attention.rank` with mean 1, averaged over heads; {} for a policy without
        attention.
      observation_shapes: shape of each observation, by name.
      action_size: A.
      normalised: names of the vectors that running statistics normalise, which training updates:
        features["normaliser"][name] holds their `shift` and `scale`.
      observation_dtypes: dtypes of those observations that are not float32.
      init_state: features -> the state in which an episode begins.
      remembered: (parameters, features, observation, state) -> for each camera whose images a memory holds by
        their places, what it reads around the robot, [rows, columns, channels] as in `top_view`; {} for
        other policies. The state is that after the step.
      asked: (parameters, features, observation, state) -> for each reader with a memory of attention,
        `queries` [T, D] of a step, and the `least` mean weight [] of a read; {} for other policies.
    """

    init: Callable[[Array], Any]
    init_features: Callable[[Array], Any]
    act: Callable[[Any, Any, Observation, Any], tuple[Array, Any]]
    inspect: Callable[[Any, Any, Observation, Any], tuple[dict[str, Array], Any]]
    attended: Callable[[Any, Any, Observation, Any], tuple[Heads, ...]]
    ranked: Callable[[Any, Any, Observation, Any], dict[str, Array]]
    observation_shapes: dict[str, tuple[int, ...]]
    action_size: int
    normalised: tuple[str, ...] = ()
    observation_dtypes: Mapping[str, str] = MappingProxyType({})
    init_state: Callable[[Any], Any] = stateless
    remembered: Callable[[Any, Any, Observation, Any], dict[str, Array]] = nothing
    asked: Callable[[Any, Any, Observation, Any], dict[str, Any]] = nothing

    @property
    def observation(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shape and dtype of every observation."""
        return {
            name: jax.ShapeDtypeStruct(shape, self.observation_dtypes.get(name, "float32"))
            for name, shape in self.observation_shapes.items()
        }


# The functions of a step.
PER_STEP = ("act", "inspect", "attended", "ranked", "remembered", "asked")
KEY = jax.eval_shape(lambda: jax.random.key(0))  # the shape of a key, to evaluate shapes
CLIP = 5.0  # limit of normalised observations


def exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, with all bits of float32 in its products: by default, GPUs and TPUs round their factors."""

    @wraps(function)
    def precise(*arguments: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return function(*arguments)

    return precise


def constants_of(
    what: str, given: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Array]:
    """The float32 arrays of `given` that `shapes` names.

    Raises ValueError, beginning with `what`, for an array that is missing or has another shape.
    """
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} is of type {type(given).__name__}: it must hold arrays by name")
    constants = {}
    for name, shape in shapes.items():
        if name not in given:
            raise ValueError(f"{what} lacks {name!r}: it must hold an array {list(shape)} of that name")
        try:
            with jax.ensure_compile_time_eval():  # no tracer, wherever they are asked for
                constants[name] = jnp.asarray(given[name], jnp.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{what} {name!r} must be an array of numbers {list(shape)}") from error
        if constants[name].shape != shape:
            actual = list(constants[name].shape)
            raise ValueError(f"{what} {name!r} has shape {actual}: it must be {list(shape)}")
    return constants


def side_by_side(arrays: list[Array], axis: int = 0) -> Array:
    """The arrays side by side; one array alone costs nothing."""
    return jnp.concatenate(arrays, axis) if len(arrays) > 1 else arrays[0]


def normalise(normaliser: Mapping[str, Array], values: Array) -> Array:
    """(values - shift) * scale, clipped to `CLIP`."""
    return jnp.clip((values - normaliser["shift"]) * normaliser["scale"], -CLIP, CLIP)


def with_normaliser(policy: PolicyFunctions, features: Any, normaliser: Array | None) -> Any:
    """`features` with other statistics: shift and scale of every normalised observation in turn, flat [2K].

    None leaves `features` as they are.
    """
    if normaliser is None:
        return features
    statistics, at = {}, 0
    for name in policy.normalised:
        (width,) = policy.observation_shapes[name]
        shift, scale = normaliser[at : at + width], normaliser[at + width : at + 2 * width]
        statistics[name] = {"shift": shift, "scale": scale}
        at += 2 * width
    return {**features, "normaliser": statistics}


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


def leaves_by_path(tree: Any) -> dict[str, Any]:
    """The leaves of a pytree by their path, as `draws/front/omega/vectors`, in the order of `flatten`."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def named_state(state: Any) -> dict[str, Any]:
    """The arrays of a state by their names in graphs, such as `state_hind_sums_0`.

    Raises ValueError if two of them, as of cameras `a b` and `a_b`, would have one name.
    """
    arrays = leaves_by_path(state)
    named = {"state_" + re.sub(r"\W+", "_", path).strip("_"): leaf for path, leaf in arrays.items()}
    if len(named) < len(arrays):
        raise ValueError(f"the state has {', '.join(map(repr, arrays))}: two would have one name in a graph")
    return named


def state_shape(policy: PolicyFunctions, features: Any) -> Any:
    """Shapes and dtypes of the state, a pytree without leaves for a policy without state.

    `features` may be shapes, too.
    """
    return jax.eval_shape(policy.init_state, features)


def parameter_count(policy: PolicyFunctions) -> int:
    """Number of trainable parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(policy.init, KEY)))
