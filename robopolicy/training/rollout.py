"""One episode of any policy in any environment. numpy only: rollout workers hold no JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

Act = Callable[[Mapping[str, NDArray[np.float32]]], NDArray[np.float32]]


class Moments(NamedTuple):
    """Of the vectors [K] that were seen: how many, their sum [K] and the sum of their squares [K]."""

    number: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]


class Episode(NamedTuple):
    """How an episode went.

    Attributes:
      total: its return.
      steps: its length.
      info: the last `info` of the environment.
      seconds: wall time that it took.
      seen: moments of the observations that were watched, by name.
    """

    total: float
    steps: int
    info: dict[str, Any]
    seconds: float
    seen: dict[str, Moments]


class Step(NamedTuple):
    """What `run_episode` shows of a step: what the policy saw and did, and what came of it so far."""

    observation: Mapping[str, NDArray[np.float32]]
    action: NDArray[np.float32]
    total: float
    info: dict[str, Any]


class Playing:
    """An episode in progress, a step at a time; `observation` is what the next action is for."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int, watched: tuple[str, ...] = ()) -> None:
        """Begin; `watched` names vector observations whose moments are part of the Episode."""
        self._began = time.monotonic()
        self._env = env
        self.observation, self._info = env.reset(seed=seed)
        self._total, self._steps = 0.0, 0
        self._watched: dict[str, list[NDArray[np.float32]]] = {name: [] for name in watched}

    def step(self, action: NDArray[np.float32]) -> tuple[Step, Episode | None]:
        """Act once; what came of it, and the episode if this was its end."""
        seen = self.observation
        for name, rows in self._watched.items():
            rows.append(seen[name])
        following, reward, ended, cut, self._info = self._env.step(action)
        self._total += float(reward)
        self._steps += 1
        self.observation = following
        step = Step(seen, action, self._total, self._info)
        return step, self._finished() if ended or cut else None

    def _finished(self) -> Episode:
        moments = {}
        for name, rows in self._watched.items():
            stacked = np.stack(rows).astype(np.float64)
            moments[name] = Moments(len(rows), stacked.sum(axis=0), np.square(stacked).sum(axis=0))
        seconds = time.monotonic() - self._began
        return Episode(self._total, self._steps, dict(self._info), seconds, moments)


def run_episode(
    env: gymnasium.Env[Any, Any],
    act: Act,
    seed: int,
    on_step: Callable[[Step], None] | None = None,
    watched: tuple[str, ...] = (),
) -> Episode:
    """Play one episode from `seed` to its end; the same policy and seed give the same bits."""
    playing = Playing(env, seed, watched)
    while True:
        step, episode = playing.step(act(playing.observation))
        if on_step is not None:
            on_step(step)
        if episode is not None:
            return episode
