"""What acts in episodes: a policy, the name of a run or of a baseline, or any function of observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import gymnasium

from robopolicy.bundles.onnx import export_policy
from robopolicy.envs.registry import task_class
from robopolicy.envs.task import task_of
from robopolicy.experiments.runs import BASELINES, BLIND, load
from robopolicy.policies import baselines
from robopolicy.policies.policy import Policy
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training.rollout import Act
from robopolicy.writing import scratch

Who = str | Policy | Act


class Player(NamedTuple):
    """Something that plays episodes.

    Attributes:
      name: what tables and films call it.
      act_in: (environment, seed of the episode) -> observation -> action.
      shapes: of the observations that it looks at, by name; None where they are not known.
      policy: the policy behind it; None for a baseline or a function.
    """

    name: str
    act_in: Callable[[gymnasium.Env[Any, Any], int], Act]
    shapes: Mapping[str, tuple[int, ...]] | None
    policy: Policy | None


def player(who: Who, task: str) -> Player:
    """The player that `who` names or is, on a task.

    A policy acts as its ONNX graph does, which is converted at the first action; that takes seconds. Raises
    ValueError or FileNotFoundError, in one line, for no player of this task.
    """
    if isinstance(who, str):
        privileged = task_class(task).players
        if who in (*BLIND, *privileged):
            return Player(who, lambda env, seed: _baseline(who, env, seed), {}, None)
        if who in BASELINES:
            raise ValueError(f"player is {who!r}: {task} has {', '.join((*privileged, *BLIND))}")
        return _policy_player(load(who), who)
    if isinstance(who, Policy):
        return _policy_player(who, who.name)
    if callable(who):
        return Player(getattr(who, "__name__", type(who).__name__), lambda env, seed: who, None, None)
    raise ValueError(f"player is {who!r}: it must be a policy, the name of one, or a function")


def _policy_player(policy: Policy, name: str) -> Player:
    @cache
    def graph() -> Act:
        with scratch() as folder:
            path = folder / "policy.onnx"
            export_policy(policy.config, policy.features, path, policy.parameters)
            return OnnxPolicy(path)

    return Player(name, lambda env, seed: graph(), policy.functions.observation_shapes, policy)


def _baseline(name: str, env: gymnasium.Env[Any, Any], seed: int) -> Act:
    """A privileged player reads the simulation; the others look at nothing."""
    if name not in BLIND:
        task = task_of(env)
        return lambda observation: task.privileged_action(name)
    size = len(task_of(env).actions)
    return baselines.blind(size) if name == "blind" else baselines.random(size, seed)
