"""The policy that a task trains where nobody gives one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from robopolicy.attention import canonical
from robopolicy.envs.registry import make, task_class
from robopolicy.envs.task import Task, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.naming import one_of
from robopolicy.policies.catalogue import KINDS, PolicyConfig
from robopolicy.policies.default_iap import default_iap
from robopolicy.policies.iap_config import NO_VISION, IAPConfig
from robopolicy.policies.policy import Policy
from robopolicy.policies.quadruped import quadruped
from robopolicy.policies.vision_performer_config import (
    PRESETS,
    ImageInput,
    VectorInput,
    VisionPerformerConfig,
    default_patch,
)

IAP, VISION_PERFORMER = KINDS
# Settings of each kind of policy that commands have as options.
OPTIONS = {IAP: ("variant", "patch"), VISION_PERFORMER: ("preset", "patch", "head")}


def canonical_spec(attention: str) -> str:
    """The one way to write a mechanism, or `none`. Raises ValueError for what is neither."""
    return attention if attention == NO_VISION else canonical(attention)


def policy_kind(task: str) -> str:
    """The kind of policy that a task declares, an Implicit Attention Policy where it declares none."""
    kind = task_class(task).policy_settings.get("kind", IAP)
    return one_of(f"policy_settings of {task}: kind", kind, OPTIONS)


def check_kind(task: str, kind: str) -> None:
    """Raise ValueError for a task that declares a policy of another `kind`."""
    declared = task_class(task).policy_settings.get("kind", kind)
    if declared != kind:
        raise ValueError(f"task is {task!r}: its policy is of the kind {declared!r}, and not {kind!r}")


def policy_config(attention: str, task: str, **settings: Any) -> PolicyConfig:
    """The policy that a task trains by default, on the mechanism that `attention` specifies."""
    declared = {name: value for name, value in task_class(task).policy_settings.items() if name != "kind"}
    if policy_kind(task) == VISION_PERFORMER:
        return vision_performer_config(attention, **{**declared, **settings})
    return iap_config(attention, task, **settings)


def iap_config(attention: str, env: str | Task, **settings: Any) -> IAPConfig:
    """The Implicit Attention Policy that a task declares, or one that reads all that the task observes."""
    declared = task_class(env).policy_settings if isinstance(env, str) else env.policy_settings
    if "proprioception" in declared:
        return quadruped(canonical_spec(attention), declared["proprioception"], **settings)
    if isinstance(env, str):
        made = make(env)
        task = task_of(made)
        made.close()
    else:
        task = env
    entries = {name: [q.name for q in quantities] for name, quantities in task.vectors.items()}
    names = [*task.images(), *entries]
    shapes = {n: s.shape for n, s in task.observation_space.spaces.items() if n in names}  # type: ignore[attr-defined]
    actions = [quantity.name for quantity in task.actions]
    return default_iap(canonical_spec(attention), shapes, actions, entries, **settings)


def vision_performer_config(
    attention: str,
    images: Mapping[str, tuple[int, int]],
    vectors: Mapping[str, int],
    actions: int,
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
      patch: side of a token, pixels; by default what fits all images.
      settings: further settings of `VisionPerformerConfig`.
    """
    size: dict[str, Any] = PRESETS[one_of("preset", preset, PRESETS)]
    return VisionPerformerConfig(
        canonical_spec(attention),
        images=tuple(ImageInput(name, *sides) for name, sides in images.items()),
        vectors=tuple(VectorInput(name, count) for name, count in vectors.items()),
        actions=actions,
        patch=default_patch(*(s for sides in images.values() for s in sides)) if patch is None else patch,
        **size,
        **settings,
    )


def new_policy(
    env: str | gymnasium.Env[Any, Any] | Environment,
    attention: str = "angular_hybrid(m=8, n=8)",
    *,
    seed: int = 0,
    **settings: Any,
) -> Policy:
    """An untrained Implicit Attention Policy for a task, which `train_es` trains.

    Args:
      env: the task.
      attention: spec of the mechanism; `none` for a policy that is given no image.
      seed: of its parameters and of its features.
      settings: of `IAPConfig`, where they are not to be the task's or its own.
    """
    with opened(env, None) as made:
        task = task_of(made)
        name = f"untrained on {Environment.of(env).task}"
        return Policy.create(iap_config(attention, task, **settings), task.reference_images(), seed, name)
