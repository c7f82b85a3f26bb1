"""The code of a rollout worker: an environment and a graph, as ONNX or C, without JAX."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.compiled import CGraph, CompiledGraph
from robopolicy.runtime.compiler import library
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.training.rollout import Episode, run_episode


@dataclass(frozen=True)
class EnvironmentSpec:
    """An environment by gymnasium id, with its settings and a `label` for logs."""

    id: str
    settings: Mapping[str, Any]
    label: str

    def make(self) -> gymnasium.Env[Any, Any]:
        """The environment itself."""
        return gymnasium.make(self.id, **self.settings)


class Environments:
    """Environments that are made once, and used until they raise."""

    def __init__(self) -> None:
        self._made: dict[Hashable, gymnasium.Env[Any, Any]] = {}

    @contextmanager
    def using(self, key: Hashable, spec: EnvironmentSpec) -> Iterator[gymnasium.Env[Any, Any]]:
        """The environment of `key`, made of `spec` at its first use, and anew after a use that raised."""
        if key not in self._made:
            self._made[key] = spec.make()
        try:
            yield self._made[key]
        except Exception:
            # It may be in an undefined state, in which `close` may fail, too: the first error is the cause.
            with suppress(Exception):
                self._made.pop(key).close()
            raise

    def close(self) -> None:
        """Close the environments."""
        for env in self._made.values():
            env.close()


class Task(NamedTuple):
    """One episode: index of the environment, parameters [P], seed, and normaliser [2K] of the policy."""

    environment: int
    parameters: NDArray[np.float32]
    seed: int
    normaliser: NDArray[np.float32] | None = None


class Player:
    """Plays one task after another on environments that it makes once."""

    def __init__(
        self, environments: tuple[EnvironmentSpec, ...], model: bytes | CGraph, watched: tuple[str, ...]
    ) -> None:
        self._specs, self._model, self._watched = environments, model, watched
        self._environments = Environments()
        self._policy: OnnxPolicy | CompiledGraph | None = None

    def prepare(self) -> None:
        """Compile a policy in C on this machine. Raises CompilerError."""
        if isinstance(self._model, CGraph):
            library(self._model.sources)

    def play(self, task: Task) -> Episode:
        """The episode of `task`; raises what the environment raises."""
        if self._policy is None:
            if isinstance(self._model, CGraph):
                self._policy = CompiledGraph(self._model, task.parameters)
            else:
                self._policy = OnnxPolicy(self._model, task.parameters)
        self._policy.parameters, self._policy.normaliser = task.parameters, task.normaliser
        with self._environments.using(task.environment, self._specs[task.environment]) as env:
            self._policy.reset()
            return run_episode(env, self._policy, task.seed, watched=self._watched)

    def close(self) -> None:
        """Close the environments."""
        self._environments.close()


def error_line(error: Exception) -> str:
    """An error in one line, for a report."""
    return f"{type(error).__name__}: {error}"


def answer_all(connection: Connection[Any, Any], answer: Callable[[Any], object]) -> None:
    """Send `answer(message)`, or its error in words, for each message until the other end closes."""
    while True:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return
        try:
            # Pickled here, so that an answer that cannot be pickled is an error like any other.
            content = ForkingPickler.dumps(answer(message))
        except Exception as error:  # an environment may raise anything; the parent process reports it
            content = ForkingPickler.dumps(error_line(error))
        try:
            connection.send_bytes(content)
        except OSError:
            return
        del content  # a view of a buffer; Python prints an error if the buffer is freed before the view


def serve(
    connection: Connection[Any, Any],
    environments: tuple[EnvironmentSpec, ...],
    model: bytes | CGraph,
    watched: tuple[str, ...],
) -> None:
    """Answer every Task on `connection` with its Episode, or with an error in words."""
    player = Player(environments, model, watched)
    answer_all(connection, player.play)
    player.close()
