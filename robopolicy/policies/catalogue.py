"""Policies as they are written down: a description in JSON and arrays by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.policies.base import KEY, Policy
from robopolicy.policies.iap import IAPConfig, iap
from robopolicy.policies.vision_performer import STATISTICS, VisionPerformerConfig, vision_performer
from robopolicy.settings import check_types

Arrays = dict[str, NDArray[Any]]
PolicyConfig = IAPConfig | VisionPerformerConfig


class Kind(NamedTuple):
    """A kind of policy: the class of its config, the path in its features of what it is told of its
    surroundings, the shapes of these constants by name, and the policy made with them.
    """

    config: type
    constants: str
    shapes: Callable[[Any], dict[str, tuple[int, ...]]]
    make: Callable[[Any, Mapping[str, NDArray[Any]]], Policy]


KINDS = {
    "iap": Kind(IAPConfig, "level", lambda c: dict.fromkeys(("front_depth", "belly_depth"), c.image), iap),
    "vision-performer": Kind(
        VisionPerformerConfig,
        "statistics",
        lambda c: {name: (c.poses if name.startswith("pose") else c.actions,) for name in STATISTICS},
        lambda config, known: vision_performer(config, known).policy,
    ),
}


def kind_of(config: PolicyConfig) -> str:
    """The name in `KINDS` of a config's kind."""
    return next(name for name, kind in KINDS.items() if isinstance(config, kind.config))


def describe(config: PolicyConfig) -> dict[str, Any]:
    """`config` as JSON can hold it."""
    return {"kind": kind_of(config), **asdict(config)}


def restore(description: Mapping[str, Any]) -> PolicyConfig:
    """The config that `describe` wrote down. Raises ValueError for anything else."""
    if not isinstance(description, Mapping):
        raise ValueError(f"policy is {description!r}: it must be settings by name")
    settings = dict(description)
    kind = settings.pop("kind", None)
    if kind not in KINDS:
        raise ValueError(f"policy kind is {kind!r}: it must be {' or '.join(map(repr, KINDS))}")
    config = KINDS[kind].config
    known = {f.name for f in fields(config)}
    if settings.keys() != known:
        odd = sorted(settings.keys() ^ known)
        raise ValueError(
            f"policy has settings {sorted(settings)}: it must have {sorted(known)}, so look at {odd}"
        )
    check_types("policy setting", settings, config)
    tuples: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}
    restored: PolicyConfig = config(**tuples)
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


def policy_of(config: PolicyConfig, features: Mapping[str, NDArray[Any]]) -> tuple[Policy, Any]:
    """The policy of `config`, and its features from arrays by path."""
    kind = KINDS[kind_of(config)]
    paths = {name: f"{kind.constants}/{name}" for name in kind.shapes(config)}
    missing = [path for path in paths.values() if path not in features]
    if missing:
        raise ValueError(f"features lack {missing[0]}: they belong to another policy")
    policy = kind.make(config, {name: features[path] for name, path in paths.items()})
    return policy, from_path(jax.eval_shape(policy.init_features, KEY), features)


def untold(config: PolicyConfig) -> Policy:
    """The policy of `config` with zeros for what it is told of its surroundings: a step costs the same."""
    kind = KINDS[kind_of(config)]
    return kind.make(config, {name: np.zeros(shape) for name, shape in kind.shapes(config).items()})
