"""What runs in a rollout worker: an environment, an ONNX graph, and no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training.rollout import Episode, run_episode


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment by gymnasium id, the settings that it is made with, and a `label` for logs."""

    id: str
    settings: Mapping[str, Any]
    label: str

    def make(self) -> gymnasium.Env[Any, Any]:
        """The environment itself."""
        return gymnasium.make(self.id, **self.settings)


class Task(NamedTuple):
    """One episode: which environment, the policy's parameters [P], the seed, and its normaliser [2K]."""

    environment: int
    parameters: NDArray[np.float32]
    seed: int
    normaliser: NDArray[np.float32] | None = None


class Player:
    """Plays tasks, one after another, on environments that it keeps."""

    def __init__(
        self, environments: tuple[EnvironmentSpec, ...], model: bytes, watched: tuple[str, ...]
    ) -> None:
        self._environments, self._model, self._watched = environments, model, watched
        self._made: dict[int, gymnasium.Env[Any, Any]] = {}
        self._policy: OnnxPolicy | None = None

    def play(self, task: Task) -> Episode:
        """The episode of `task`; whatever the environment raises is raised."""
        if self._policy is None:
            self._policy = OnnxPolicy(self._model, task.parameters)
        self._policy.parameters, self._policy.normaliser = task.parameters, task.normaliser
        if task.environment not in self._made:
            self._made[task.environment] = self._environments[task.environment].make()
        try:
            env = self._made[task.environment]
            return run_episode(env, self._policy, task.seed, watched=self._watched)
        except Exception:
            # An environment that raised may be left half-way: the next try gets a new one.
            del self._made[task.environment]
            raise

    def close(self) -> None:
        """Close the environments."""
        for env in self._made.values():
            env.close()


def words(error: Exception) -> str:
    """An error in one line, for the trainer to report."""
    return f"{type(error).__name__}: {error}"


def serve(
    connection: Connection[Any, Any],
    environments: tuple[EnvironmentSpec, ...],
    model: bytes,
    watched: tuple[str, ...],
) -> None:
    """Answer every Task on `connection` with an Episode, or with the words of the error that ended it."""
    player = Player(environments, model, watched)
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):  # the trainer is gone, or done
            break
        try:
            # Pickled here, so that an `info` which cannot be is an error like any other.
            answer = ForkingPickler.dumps(player.play(task))
        except Exception as error:  # whatever a user's environment raises is the trainer's to report
            answer = ForkingPickler.dumps(words(error))
        try:
            connection.send_bytes(answer)
        except OSError:
            break
    player.close()
