"""Policies as they are written down: a description in JSON and arrays by path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.policies.base import Policy
from robopolicy.policies.iap import IAPConfig, iap
from robopolicy.settings import check_types

Arrays = dict[str, NDArray[Any]]


def describe(config: IAPConfig) -> dict[str, Any]:
    """`config` as JSON can hold it."""
    return {"kind": "iap", **asdict(config)}


def restore(description: Mapping[str, Any]) -> IAPConfig:
    """The config that `describe` wrote down. Raises ValueError for anything else."""
    if not isinstance(description, Mapping):
        raise ValueError(f"policy is {description!r}: it must be settings by name")
    settings = dict(description)
    kind = settings.pop("kind", None)
    if kind != "iap":
        raise ValueError(f"policy kind is {kind!r}: it must be 'iap'")
    known = {f.name for f in fields(IAPConfig)}
    if settings.keys() != known:
        odd = sorted(settings.keys() ^ known)
        raise ValueError(
            f"policy has settings {sorted(settings)}: it must have {sorted(known)}, so look at {odd}"
        )
    check_types("policy setting", settings, IAPConfig)
    tuples: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in settings.items()}
    return IAPConfig(**tuples)


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


def policy_of(config: IAPConfig, features: Mapping[str, NDArray[Any]]) -> tuple[Policy, Any]:
    """The policy of `config`, and its features from arrays by path."""
    prefix = "level/"
    level = {path.removeprefix(prefix): array for path, array in features.items() if path.startswith(prefix)}
    missing = {"front_depth", "belly_depth"} - level.keys()
    if missing:
        raise ValueError(f"features lack level/{sorted(missing)[0]}: they belong to another policy")
    policy = iap(config, level)
    return policy, from_path(jax.eval_shape(policy.init_features, jax.random.key(0)), features)
