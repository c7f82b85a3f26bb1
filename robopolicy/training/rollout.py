"""One episode of any policy in any environment. numpy only: rollout workers hold no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

Act = Callable[[Mapping[str, NDArray[np.float32]]], NDArray[np.float32]]


class Episode(NamedTuple):
    """How an episode went: its return, its length in steps, and the last `info` of the environment."""

    total: float
    steps: int
    info: dict[str, Any]


class Step(NamedTuple):
    """What `run_episode` shows of a step: what the policy saw and did, and what came of it so far."""

    observation: Mapping[str, NDArray[np.float32]]
    action: NDArray[np.float32]
    total: float
    info: dict[str, Any]


def run_episode(
    env: gymnasium.Env[Any, Any], act: Act, seed: int, on_step: Callable[[Step], None] | None = None
) -> Episode:
    """Play one episode from `seed` to its end; the same policy and seed give the same bits."""
    observation, info = env.reset(seed=seed)
    total, steps = 0.0, 0
    while True:
        action = act(observation)
        following, reward, ended, cut, info = env.step(action)
        total += float(reward)
        steps += 1
        if on_step is not None:
            on_step(Step(observation, action, total, info))
        if ended or cut:
            return Episode(total, steps, dict(info))
        observation = following
