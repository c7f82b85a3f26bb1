"""The policies that tasks train by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from inspect import signature
from typing import Any

import gymnasium
import numpy as np

from robopolicy.attention import canonical
from robopolicy.envs.registry import task_class
from robopolicy.envs.task import Task, named, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.players import check_match
from robopolicy.naming import one_of
from robopolicy.policies.catalogue import KINDS, PolicyConfig
from robopolicy.policies.controls import (
    CONTROLS,
    MEMORY_ENCODERS,
    NAMED_ENCODERS,
    NO_ATTENTION,
    NO_VISION,
    from_label,
    label,
)
from robopolicy.policies.default_iap import default_iap
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.policy import Policy
from robopolicy.policies.quadruped import FIXED, quadruped
from robopolicy.policies.vision_performer_config import (
    PRESETS,
    ImageInput,
    VectorInput,
    VisionPerformerConfig,
    default_patch,
)
from robopolicy.settings import check_count, check_types

IAP, VISION_PERFORMER = KINDS
# Settings of each kind of policy that commands have as options.
OPTIONS = {
    IAP: ("variant", "encoder", "preset", "patch"),
    VISION_PERFORMER: ("preset", "encoder", "patch", "head", "history", "chunk"),
}
LAST_SEED = 2**32 - 1
LANGEVIN_STEPS = 100  # of a search for an action
LEVEL = KINDS[IAP].constants


def canonical_spec(attention: str) -> str:
    """The canonical spec of a mechanism, or a control: `none`, `all`. Raises ValueError for other specs."""
    return attention if attention in CONTROLS else _canonical(attention, CONTROLS)


def canonical_label(attention: str) -> str:
    """The canonical spec of a mechanism, or the label of a control. Raises ValueError for anything else."""
    spec, encoder = from_label(attention)
    if encoder or spec in CONTROLS:
        return attention
    return _canonical(spec, (*CONTROLS, *(label(NO_ATTENTION, e) for e in NAMED_ENCODERS)))


def _canonical(attention: str, controls: Sequence[str]) -> str:
    """The canonical spec of a mechanism. An error names `controls`, which are allowed, too."""
    if not isinstance(attention, str):
        kind = type(attention).__name__  # a mechanism itself would be a long list of functions
        raise ValueError(
            f"attention is of type {kind}: it must be the spec of a mechanism, such as 'softmax'"
        )
    try:
        return canonical(attention)
    except ValueError as error:
        raise ValueError(f"{error} (or a control: {'; '.join(controls)})") from error


def policy_kind(task: str) -> str:
    """The kind of policy that a task declares; by default an Implicit Attention Policy."""
    kind = task_class(task).policy_settings.get("kind", IAP)
    return one_of(f"policy_settings of {task}: kind", kind, OPTIONS)


def check_kind(task: str, kind: str) -> None:
    """Raise ValueError for a task that declares a policy of another `kind`."""
    declared = task_class(task).policy_settings.get("kind", kind)
    if declared != kind:
        raise ValueError(f"task is {task!r}: its policy is of the kind {declared!r}, and not {kind!r}")


def policy_config(attention: str, task: str, **settings: Any) -> PolicyConfig:
    """The policy that a task trains by default, with the mechanism that `attention` specifies.

    Of the settings, `preset` is a size of the Vision-Performer, and elsewhere a preset of the task, whose
    observations the policy reads.
    """
    declared = {name: value for name, value in task_class(task).policy_settings.items() if name != "kind"}
    if policy_kind(task) == VISION_PERFORMER:
        declared |= settings
        inputs = [declared.pop(name) for name in ("images", "vectors", "actions")]
        return vision_performer_config(attention, *inputs, **declared)
    preset = settings.pop("preset", None)
    if "proprioception" in declared and preset is None:
        return _quadruped(attention, declared, settings)
    with opened(Environment(task, preset=preset), None) as env:
        return iap_config(attention, task_of(env), **settings)


def iap_config(attention: str, task: Task, **settings: Any) -> IAPConfig:
    """The Implicit Attention Policy that a task declares; by default one that reads all observations."""
    if "proprioception" in task.policy_settings:
        _check_sizes(task)
        return _quadruped(attention, task.policy_settings, settings)
    _check_memory(task.policy_settings, settings)
    _check_settings(settings, IAPConfig, ())
    entries = {name: [q.name for q in quantities] for name, quantities in task.vectors.items()}
    names = [*task.images(), *entries]
    _check_images(attention, task, names)
    shapes = {n: s.shape for n, s in task.observation_space.spaces.items() if n in names}  # type: ignore[attr-defined]
    actions = [quantity.name for quantity in task.actions]
    return default_iap(canonical_spec(attention), shapes, actions, entries, **settings)


def _check_memory(declared: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise ValueError for a policy with a memory if the task has declared no odometry."""
    for name, memories in (("variant", ("memory",)), ("encoder", MEMORY_ENCODERS)):
        if settings.get(name) in memories and "odometry" not in declared:
            raise ValueError(
                f"{name} is {settings[name]!r}: a memory needs the stepping stones with the front camera "
                "alone, as on the preset front"
            )


def _check_images(attention: str, task: Task, read: Sequence[str]) -> None:
    """Raise ValueError if a policy would read images, and those of the task have forms that none reads."""
    spaces: Any = task.observation_space
    unread = [f"{name!r} {box.dtype}{list(box.shape)}" for name, box in spaces.items() if name not in read]
    if unread and not task.images() and attention != NO_VISION:
        raise ValueError(
            f"attention is {attention!r}: environment {named(task)!r} has no image that it reads, which is "
            f"float32 [H, W] from 0 (depth) or uint8 [H, W, 3] (colour), but {', '.join(unread)}"
        )


def _check_sizes(task: Task) -> None:
    """Raise ValueError for a robot whose cameras differ in their sizes."""
    sizes = {name: "{} x {}".format(*image.shape) for name, image in task.reference_images().items()}
    if len(set(sizes.values())) > 1:
        told = " and ".join(f"{name} of {size}" for name, size in sizes.items())
        raise ValueError(f"robot has {told} pixels: for a policy, its cameras must have the same size")


def _quadruped(attention: str, declared: Mapping[str, Any], settings: Mapping[str, Any]) -> IAPConfig:
    _check_memory(declared, settings)
    own = {name: value for name, value in declared.items() if name != "kind"}
    more = [name for name in [*signature(quadruped).parameters][1:-1] if name not in own]
    _check_settings(settings, IAPConfig, more)
    return quadruped(canonical_spec(attention), **own, **settings)


def _check_settings(settings: Mapping[str, Any], config: type, more: Sequence[str]) -> None:
    """Raise ValueError unless `settings` are optional fields of `config` with its types, or among `more`."""
    optional = [f.name for f in fields(config) if f.default is not MISSING and f.name not in FIXED]
    for name in settings:
        if name not in (*optional, *more):
            raise ValueError(f"settings has {name!r}: it must be among {', '.join((*optional, *more))}")
    check_types("settings:", settings, config)


def vision_performer_config(
    attention: str,
    images: Mapping[str, tuple[int, int]],
    vectors: Mapping[str, int],
    actions: int,
    /,
    *,
    preset: str = "small",
    patch: int | None = None,
    **settings: Any,
) -> VisionPerformerConfig:
    """A Vision-Performer whose size `preset` names.

    Args:
      attention: spec of the mechanism.
      images: rows and columns of each image, by the observation's name.
      vectors: size of each vector, by the observation's name.
      actions: numbers in an action.
      preset: name in `PRESETS`.
      patch: side of a token, pixels; default: a size that fits all images.
      settings: further settings of `VisionPerformerConfig`, which override those of `preset`. The head
        `langevin` has 100 iterations by default.

    Raises ValueError for bad input.
    """
    sizes: dict[str, Any] = PRESETS[one_of("preset", preset, PRESETS)]
    options = settings if patch is None else {**settings, "patch": patch}
    _check_settings(options, VisionPerformerConfig, ())
    if options.get("head") == "langevin":
        options = {"iterations": LANGEVIN_STEPS, **options}
    options = {"patch": default_patch(*(s for sides in images.values() for s in sides)), **sizes, **options}
    return VisionPerformerConfig(
        canonical_spec(attention),
        images=tuple(ImageInput(name, *sides) for name, sides in images.items()),
        vectors=tuple(VectorInput(name, count) for name, count in vectors.items()),
        actions=actions,
        **options,
    )


def new_policy(
    env: str | gymnasium.Env[Any, Any] | Environment,
    attention: str = "angular_hybrid(m=8, n=8)",
    *,
    seed: int = 0,
    **settings: Any,
) -> Policy:
    """An untrained Implicit Attention Policy for a task, for `train_es` to train.

    Args:
      env: the task, by its name or as an environment.
      attention: spec of the mechanism, such as `softmax`; `none` for a policy that sees no images, `all` for
        one that reads all of them without attention.
      seed: fixes its parameters and its random features.
      settings: settings of `IAPConfig` that override those of the task.

    Raises ValueError, in one line, for bad input.
    """
    check_count("seed", seed, 0, LAST_SEED)
    with opened(env, None) as instance:
        task = task_of(instance)
        name = f"untrained on {Environment.of(env).task}"
        return Policy.create(iap_config(attention, task, **settings), task.reference_images(), seed, name)


def transferred(policy: Policy, env: str | gymnasium.Env[Any, Any] | Environment) -> Policy:
    """A trained policy for the robot of `env`, without training: its parameters with that robot's geometry.

    It keeps what it learned, and looks for footholds by the cameras, feet and reach of the robot. Raises
    ValueError, in one line, for a policy that does not look at footholds by their geometry, and for a task
    with other observations or actions than the policy's.
    """
    config = policy.config
    if not (isinstance(config, IAPConfig) and config.footholds):
        raise ValueError(f"policy is {policy.name!r}: it holds no geometry of footholds, so train another")
    with opened(env, None) as instance:
        task = task_of(instance)
        check_match(policy, task, Environment.of(env).task)
        own = iap_config(config.attention, task, encoder=config.encoder, patch=config.patch)
        level = {name: np.asarray(image, np.float32) for name, image in task.reference_images().items()}
    moved = replace(config, footholds=own.footholds)
    return replace(policy, config=moved, features={**policy.features, LEVEL: level})
