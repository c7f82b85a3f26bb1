"""Policies in files: a description in JSON and arrays by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.naming import shown
from robopolicy.policies.base import KEY, PER_STEP, PolicyFunctions, constants_of, exact, leaves_by_path
from robopolicy.policies.iap import iap, level_shapes
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.older_formats import current_path, from_older
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import VisionPerformerConfig, statistics_shapes
from robopolicy.settings import check_array, from_json

Arrays = dict[str, NDArray[Any]]
PolicyConfig = IAPConfig | VisionPerformerConfig


class Kind(NamedTuple):
    """A kind of policy.

    Attributes:
      config: the class of its settings.
      constants: the path in its features of the constants from its surroundings.
      shapes: settings -> shapes of these constants by name.
      make: (settings, constants) -> the policy.
    """

    config: type
    constants: str
    shapes: Callable[[Any], dict[str, tuple[int, ...]]]
    make: Callable[[Any, Mapping[str, Any]], PolicyFunctions]


KINDS = {
    "iap": Kind(IAPConfig, "level", level_shapes, iap),
    "vision-performer": Kind(
        VisionPerformerConfig,
        "statistics",
        statistics_shapes,
        lambda config, statistics: vision_performer(config, statistics).policy,
    ),
}

NEWER = {
    "iap": ("encoder", "footholds", "recall", "memory_decay", "memory_steps", "memory_for"),
    "vision-performer": ("encoder", "history", "chunk"),
}  # the first files lack these


def kind_of(config: PolicyConfig) -> str:
    """The name in `KINDS` of the settings' kind. Raises ValueError for other settings."""
    for name, kind in KINDS.items():
        if isinstance(config, kind.config):
            return name
    allowed = " or ".join(kind.config.__name__ for kind in KINDS.values())
    raise ValueError(f"config is {shown(config)}: it must be of type {allowed}")


def describe(config: PolicyConfig) -> dict[str, Any]:
    """The JSON object of `config`."""
    description: dict[str, Any] = json.loads(json.dumps({"kind": kind_of(config), **asdict(config)}))
    return description


def restore(description: Mapping[str, Any]) -> PolicyConfig:
    """The config that `describe`, of this version or of 0.1, made. Raises ValueError for all else."""
    if not isinstance(description, Mapping):
        raise ValueError(f"policy is {shown(description)}: it must be settings by name")
    settings = dict(description)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"policy kind is {shown(kind)}: it must be {' or '.join(map(repr, KINDS))}")
    config: PolicyConfig | None = from_older(kind, settings)
    return config or from_json(f"policy, of kind {kind},", KINDS[kind].config, {**newer(kind), **settings})


def newer(kind: str) -> dict[str, Any]:
    """The settings of this kind of policy that the first files lack, with their defaults, as in JSON."""
    declared: Any = KINDS[kind].config
    defaults: dict[str, Any] = json.loads(json.dumps({n: getattr(declared, n) for n in NEWER[kind]}))
    return defaults


def by_path(tree: Any) -> Arrays:
    """The leaves of a pytree as arrays, by their path."""
    return {path: np.asarray(leaf) for path, leaf in leaves_by_path(tree).items()}


def from_path(like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The pytree with the structure of `like` and the arrays that `by_path` returned.

    Raises ValueError if a path is missing or unknown, or if a shape or a dtype differs.
    """
    check_paths(like, arrays)
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[path] for path in leaves_by_path(like)])


def check_paths(like: Any, arrays: Mapping[str, Any]) -> None:
    """Raise ValueError as `from_path`."""
    leaves = leaves_by_path(like)
    if different := sorted(leaves.keys() ^ arrays.keys()):
        some = ", ".join(different[:3]) + (f" and {len(different) - 3} more" if different[3:] else "")
        raise ValueError(f"arrays {some} are missing or unknown: they are of another policy")
    for path, leaf in leaves.items():
        check_array(f"array {path}", arrays[path], leaf.shape, leaf.dtype)


def policy_of(config: PolicyConfig, features: Mapping[str, NDArray[Any]]) -> tuple[PolicyFunctions, Any]:
    """The policy of `config`, and its features from arrays by path. Raises as `from_path`."""
    kind = KINDS[kind_of(config)]
    paths = {name: f"{kind.constants}/{name}" for name in kind.shapes(config)}
    features = {current_path(path, paths.values()): array for path, array in features.items()}
    missing = [path for path in paths.values() if path not in features]
    if missing:
        raise ValueError(f"features lack {missing[0]}: they are of another policy")
    policy = functions_of(config, {name: features[path] for name, path in paths.items()})
    return policy, from_path(jax.eval_shape(policy.init_features, KEY), features)


def functions_of(config: PolicyConfig, constants: Mapping[str, Any]) -> PolicyFunctions:
    """The policy of `config` with these constants: levels of depth cameras, or statistics of the data.

    The same settings and constants give the same functions, so JAX compiles them once.

    Raises ValueError if one is missing or has another shape, or for other settings than of a policy.
    """
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float32:
        raise ValueError("JAX_ENABLE_X64 is set: policies compute in float32, and need it unset")
    kind = KINDS[kind_of(config)]
    arrays = constants_of(kind.constants, constants, kind.shapes(config))
    return _functions(config, tuple(np.asarray(array).tobytes() for array in arrays.values()))


@lru_cache(maxsize=16)
def _functions(config: PolicyConfig, constants: tuple[bytes, ...]) -> PolicyFunctions:
    """`functions_of`, of constants that can be hashed."""
    kind = KINDS[kind_of(config)]
    arrays = {
        name: np.frombuffer(data, np.float32).reshape(shape)
        for (name, shape), data in zip(kind.shapes(config).items(), constants, strict=True)
    }
    made = kind.make(config, arrays)
    precise: Any = {name: exact(getattr(made, name)) for name in PER_STEP}
    return made._replace(**precise)


def blank_policy(config: PolicyConfig) -> PolicyFunctions:
    """The policy of `config` with zeros for its constants, for FLOPs and shapes."""
    shapes = KINDS[kind_of(config)].shapes(config)
    return functions_of(config, {name: np.zeros(shape) for name, shape in shapes.items()})
