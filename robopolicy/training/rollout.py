"""One episode of any policy in any environment, with numpy only: rollout workers do not import JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

# Seeds of the episodes that choose a policy in training; those beyond judge it.
HELD_OUT_FROM, MOST_HELD_OUT = 8000, 1000
Act = Callable[[Mapping[str, NDArray[np.float32]]], NDArray[np.float32]]


class Moments(NamedTuple):
    """Moments of observed vectors [K]: their number, their sum [K] and the sum of their squares [K]."""

    number: int
    total: NDArray[np.float64]
    squares: NDArray[np.float64]


class Episode(NamedTuple):
    """The result of an episode.

    Attributes:
      total: its return.
      steps: its length.
      info: the last `info` of the environment.
      seconds: its wall time.
      moments: of the watched observations, by name.
    """

    total: float
    steps: int
    info: dict[str, Any]
    seconds: float
    moments: dict[str, Moments]


class Step(NamedTuple):
    """A step of an episode: observation and action of the policy, the return so far, and the `info`."""

    observation: Mapping[str, NDArray[np.float32]]
    action: NDArray[np.float32]
    total: float
    info: dict[str, Any]


def copied(observation: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """An observation that stays as it is where a task writes the next one into the same arrays."""
    return {name: np.array(array) for name, array in observation.items()}


class Playing:
    """An episode in progress, step by step; `observation` is the input of the next action."""

    def __init__(self, env: gymnasium.Env[Any, Any], seed: int, watched: tuple[str, ...] = ()) -> None:
        """Begin; `watched` names vector observations whose moments are part of the Episode."""
        self._began = time.monotonic()
        self._env = env
        observation, self._info = env.reset(seed=seed)
        self.observation = copied(observation)
        self._total, self._steps = 0.0, 0
        self._watched: dict[str, list[NDArray[np.float32]]] = {name: [] for name in watched}

    def step(self, action: NDArray[np.float32]) -> tuple[Step, Episode | None]:
        """Act once. Returns the step, and the episode after its last step."""
        seen = self.observation
        for name, rows in self._watched.items():
            rows.append(seen[name])
        observation, reward, ended, cut, self._info = self._env.step(action)
        self.observation = copied(observation)
        self._total += float(reward)
        self._steps += 1
        step = Step(seen, action, self._total, self._info)
        return step, self._episode() if ended or cut else None

    def _episode(self) -> Episode:
        moments = {}
        for name, rows in self._watched.items():
            stacked = np.stack(rows).astype(np.float64)
            moments[name] = Moments(len(rows), stacked.sum(axis=0), np.square(stacked).sum(axis=0))
        seconds = time.monotonic() - self._began
        info = {n: v.item() if isinstance(v, np.generic) else v for n, v in self._info.items()}
        return Episode(self._total, self._steps, info, seconds, moments)


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
