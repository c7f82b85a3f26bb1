"""What runs in a rollout worker: an environment, an ONNX graph, and no JAX."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.policy import OnnxPolicy
from robopolicy.training.rollout import run_episode


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment by gymnasium id, the settings that it is made with, and a `label` for logs."""

    id: str
    settings: Mapping[str, Any]
    label: str


class Task(NamedTuple):
    """One episode: which environment, the policy's parameters [P], and the seed."""

    environment: int
    parameters: NDArray[np.float32]
    seed: int


def serve(connection: Connection, environments: tuple[EnvironmentSpec, ...], model: bytes) -> None:
    """Answer every Task on `connection` with an Episode, or with the words of the error that ended it."""
    # Ctrl-C reaches the whole group of processes; the trainer decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    made: dict[int, gymnasium.Env[Any, Any]] = {}
    policy = None
    while True:
        try:
            task: Task = connection.recv()
        except EOFError:
            break
        try:
            if policy is None:
                policy = OnnxPolicy(model, task.parameters)
            policy.parameters = task.parameters
            if task.environment not in made:
                spec = environments[task.environment]
                made[task.environment] = gymnasium.make(spec.id, **spec.settings)
            connection.send(run_episode(made[task.environment], policy, task.seed))
        except Exception as error:  # whatever a user's environment raises is the trainer's to report
            # An environment that raised may be left half-way: the next try gets a new one.
            made.pop(task.environment, None)
            connection.send(f"{type(error).__name__}: {error}")
    for env in made.values():
        env.close()
