"""Policies as they are written down: a description in JSON and arrays by path."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.policies.base import KEY, PolicyFunctions
from robopolicy.policies.iap import iap
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.older_formats import current_path, from_older, is_older
from robopolicy.policies.vision_performer import vision_performer
from robopolicy.policies.vision_performer_config import VisionPerformerConfig, statistics_shapes
from robopolicy.settings import from_json

Arrays = dict[str, NDArray[Any]]
PolicyConfig = IAPConfig | VisionPerformerConfig


class Kind(NamedTuple):
    """A kind of policy: the class of its config, the path in its features of what it is given of its
    surroundings, the shapes of these constants by name, and the policy made with them.
    """

    config: type
    constants: str
    shapes: Callable[[Any], dict[str, tuple[int, ...]]]
    make: Callable[[Any, Mapping[str, Any]], PolicyFunctions]


KINDS = {
    "iap": Kind(IAPConfig, "level", lambda c: {m.name: m.shape for m in c.cameras if m.reference}, iap),
    "vision-performer": Kind(
        VisionPerformerConfig,
        "statistics",
        statistics_shapes,
        lambda config, known: vision_performer(config, known).policy,
    ),
}


def kind_of(config: PolicyConfig) -> str:
    """The name in `KINDS` of a config's kind."""
    return next(name for name, kind in KINDS.items() if isinstance(config, kind.config))


def describe(config: PolicyConfig) -> dict[str, Any]:
    """`config` as JSON holds it."""
    plain: dict[str, Any] = json.loads(json.dumps({"kind": kind_of(config), **asdict(config)}))
    return plain


def restore(description: Mapping[str, Any]) -> PolicyConfig:
    """The config that `describe`, of this version or of 0.1, wrote down. Raises ValueError for all else."""
    if not isinstance(description, Mapping):
        raise ValueError(f"policy is {description!r}: it must be settings by name")
    settings = dict(description)
    kind = settings.pop("kind", None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"policy kind is {kind!r}: it must be {' or '.join(map(repr, KINDS))}")
    if is_older(kind, settings):
        return from_older(kind, settings)
    restored: PolicyConfig = from_json(f"policy, of kind {kind},", KINDS[kind].config, settings)
    return restored


def by_path(tree: Any) -> Arrays:
    """The leaves of a pytree as arrays, by their path."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(x) for path, x in leaves}


def from_path(like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The pytree of the shape of `like` whose leaves `by_path` wrote down.

    Raises ValueError where a path is missing or too many, or where a shape or a dtype differs.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(like)
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    if set(paths) != set(arrays):
        odd = sorted(set(paths) ^ set(arrays))
        raise ValueError(f"arrays {', '.join(odd)} stand on one side only: they belong to another policy")
    for path, (_, leaf) in zip(paths, leaves, strict=True):
        found = arrays[path]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise ValueError(
                f"array {path} is {found.dtype}{list(found.shape)}: "
                f"this policy has {leaf.dtype}{list(leaf.shape)} there"
            )
    return jax.tree.unflatten(structure, [arrays[path] for path in paths])


def policy_of(config: PolicyConfig, features: Mapping[str, NDArray[Any]]) -> tuple[PolicyFunctions, Any]:
    """The policy of `config`, and its features from arrays by path."""
    features = {current_path(path): array for path, array in features.items()}
    kind = KINDS[kind_of(config)]
    paths = {name: f"{kind.constants}/{name}" for name in kind.shapes(config)}
    missing = [path for path in paths.values() if path not in features]
    if missing:
        raise ValueError(f"features lack {missing[0]}: they belong to another policy")
    policy = functions_of(config, {name: features[path] for name, path in paths.items()})
    return policy, from_path(jax.eval_shape(policy.init_features, KEY), features)


def functions_of(config: PolicyConfig, constants: Mapping[str, Any]) -> PolicyFunctions:
    """The policy of `config` with these constants: levels of depth cameras, or statistics of the data.

    Raises ValueError where one is missing or has another shape.
    """
    return KINDS[kind_of(config)].make(config, constants)


def blank_policy(config: PolicyConfig) -> PolicyFunctions:
    """The policy of `config` with zeros for its constants: a step costs the same."""
    shapes = KINDS[kind_of(config)].shapes(config)
    return functions_of(config, {name: np.zeros(shape) for name, shape in shapes.items()})
