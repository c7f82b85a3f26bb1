"""Players of episodes: policies, runs, baselines, and functions from observation to action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from robopolicy.bundles.onnx import export_policy
from robopolicy.envs.registry import task_class
from robopolicy.envs.task import Task, task_of
from robopolicy.experiments.runs import BASELINES, BLIND, find_run, load
from robopolicy.policies import baselines
from robopolicy.policies.policy import Policy
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training.rollout import Act
from robopolicy.writing import scratch

PlayerLike = str | Path | Policy | Act


class Player(NamedTuple):
    """A player of episodes.

    Attributes:
      name: its name in tables and films.
      act_in: (environment, seed of the episode) -> observation -> action.
      shapes: of the observations that it reads, by name; None if unknown.
      policy: its policy; None for a baseline or a function.
      graph: converts its policy to the ONNX graph by which it acts, once; None without one.
    """

    name: str
    act_in: Callable[[gymnasium.Env[Any, Any], int], Act]
    shapes: Mapping[str, tuple[int, ...]] | None
    policy: Policy | None
    graph: Callable[[], bytes] | None = None


def check_match(policy: Policy | None, task: Task, name: str) -> None:
    """Raise ValueError unless a policy reads what the task `name` observes, and returns its actions."""
    if policy is None:
        return
    spaces = getattr(task.observation_space, "spaces", {})
    for observed, shape in policy.functions.observation_shapes.items():
        space = spaces.get(observed)
        if space is None or space.shape != tuple(shape):
            actual = "no such observation" if space is None else f"{observed} {list(space.shape)}"
            raise ValueError(
                f"policy {policy.name!r} reads {observed} {list(shape)}: the task {name!r} has {actual}"
            )
    count = len(task.actions)
    actions = policy.config.actions if isinstance(policy.config.actions, int) else len(policy.config.actions)
    if actions != count:
        raise ValueError(f"policy {policy.name!r} returns {actions} actions: the task {name!r} takes {count}")


def player(who: PlayerLike, task: str) -> Player:
    """The player `who`, or the player with this name, on a task.

    A policy acts by its ONNX graph; its first episode converts it, which takes seconds. Raises ValueError or
    FileNotFoundError, in one line, for other values.
    """
    if isinstance(who, str | Path):  # a path is a run, whatever its name
        name, privileged = str(who), task_class(task).players
        if who in (*BLIND, *privileged):
            return Player(name, lambda env, seed: _baseline(name, env, seed), {}, None)
        if who in BASELINES:
            raise ValueError(f"player is {who!r}: {task} has {', '.join((*privileged, *BLIND))}")
        find_run(name, (*privileged, *BLIND))  # its error lists the players
        return _policy_player(load(name), name)
    if isinstance(who, Policy):
        return _policy_player(who, who.name)
    if callable(who):
        name = getattr(who, "__name__", type(who).__name__)
        return Player(name, lambda env, seed: _checked(name, who, env), None, None)
    raise ValueError(f"player is {who!r}: it must be a policy, the name of one, or a function")


def _policy_player(policy: Policy, name: str) -> Player:
    shapes = policy.functions.observation_shapes

    @cache
    def graph() -> bytes:
        with scratch() as folder:
            path = folder / "policy.onnx"
            export_policy(policy.config, policy.features, path, policy.parameters)
            return path.read_bytes()

    @cache
    def onnx() -> OnnxPolicy:
        return OnnxPolicy(graph())

    def act(env: Any, seed: int) -> Act:
        return OnnxPolicy(graph()) if policy.has_state else onnx()

    return Player(name, act, shapes, policy, graph)


def _checked(name: str, act: Act, env: gymnasium.Env[Any, Any]) -> Act:
    """`act`, whose actions are checked."""
    space = env.action_space

    def step(observation: Any) -> Any:
        try:
            action = np.asarray(act(observation))
        except ValueError as error:  # ragged lists
            raise ValueError(f"player {name!r} returns an action that is no array: {error}") from error
        if action.shape != space.shape or action.dtype.kind not in "iuf":
            raise ValueError(
                f"player {name!r} returns an action {action.dtype}{list(action.shape)}: it must be numbers "
                f"{list(space.shape or ())}"
            )
        if not np.isfinite(action).all():
            raise ValueError(f"player {name!r} returns an action that is not finite: {action.tolist()}")
        return action

    return step


def _baseline(name: str, env: gymnasium.Env[Any, Any], seed: int) -> Act:
    """A privileged player reads the simulation; the others have no observations."""
    if name not in BLIND:
        task = task_of(env)
        return lambda observation: task.privileged_action(name)
    size = len(task_of(env).actions)
    return baselines.blind(size) if name == "blind" else baselines.random(size, seed)
