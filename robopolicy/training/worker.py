"""What runs in a rollout worker: an environment, an ONNX graph, and no JAX."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
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
    threading.Thread(target=_end_with_the_trainer, daemon=True).start()
    made: dict[int, gymnasium.Env[Any, Any]] = {}
    policy = None
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):  # the trainer is gone, or done
            break
        try:
            if policy is None:
                policy = OnnxPolicy(model, task.parameters)
            policy.parameters = task.parameters
            if task.environment not in made:
                spec = environments[task.environment]
                made[task.environment] = gymnasium.make(spec.id, **spec.settings)
            # Pickled here, so that an `info` which cannot be is an error like any other.
            answer = ForkingPickler.dumps(run_episode(made[task.environment], policy, task.seed))
        except Exception as error:  # whatever a user's environment raises is the trainer's to report
            # An environment that raised may be left half-way: the next try gets a new one.
            made.pop(task.environment, None)
            answer = ForkingPickler.dumps(f"{type(error).__name__}: {error}")
        try:
            connection.send_bytes(answer)
        except OSError:
            break
    for env in made.values():
        env.close()


def _end_with_the_trainer() -> None:
    """However the trainer ends, and whatever the episode is doing."""
    trainer = parent_process()
    if trainer is not None:
        wait([trainer.sentinel])
        os._exit(1)
