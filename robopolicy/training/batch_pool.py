"""Worker processes whose environments are JAX programs: each plays a chunk of episodes at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import jax
import numpy as np

from robopolicy.policies.policy import Policy
from robopolicy.training.capacity import check_workers
from robopolicy.training.evaluate import DEADLINE, Evaluator
from robopolicy.training.pool import Processes
from robopolicy.training.rollout import Episode
from robopolicy.training.worker import Task, answer_all
from robopolicy.training.worlds import Played, Worlds, episodes_of, player
from robopolicy.writing import cache_folder

WORKER = 1_100_000_000  # bytes of a process with JAX and its programs
Makers = Sequence[Callable[[], Worlds]]


class _Player:
    """Plays chunks of at most `places` episodes, in programs that it compiles once."""

    def __init__(self, makers: Makers, policy: Policy, places: int) -> None:
        self._makers, self._policy, self._places = makers, policy, places
        self._programs: dict[int, tuple[Worlds, Callable[..., Any]]] = {}

    def play(self, tasks: Sequence[Task]) -> list[Episode]:
        """The episodes of `tasks`, which have one environment and one normaliser."""
        began, first = time.monotonic(), tasks[0]
        if first.environment not in self._programs:
            worlds = self._makers[first.environment]()
            functions = self._policy.functions
            normalises = first.normaliser is not None

            def play(features: Any, *arguments: Any) -> Played:
                act = partial(self._policy.flat_act_with, features)
                state = functions.init_state(features)
                return player(worlds, act, state, functions.normalised, normalises)(*arguments)

            # Features are an argument, so that what JAX has compiled serves every seed of a policy.
            self._programs[first.environment] = worlds, jax.jit(play)
        worlds, program = self._programs[first.environment]
        filled = [*tasks, *[first] * (self._places - len(tasks))]
        parameters = np.stack([task.parameters for task in filled])
        normaliser = np.zeros(0, np.float32) if first.normaliser is None else first.normaliser
        played = program(
            self._policy.features, parameters, worlds.courses([task.seed for task in filled]), normaliser
        )
        played = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(tasks)], played)
        return episodes_of(played, worlds.causes, time.monotonic() - began)


def serve_chunks(connection: Connection[Any, Any], makers: Makers, policy: Policy, places: int) -> None:
    """Answer every list of Tasks on `connection` with its Episodes, or with an error in words."""
    jax.config.update("jax_platforms", "cpu")  # each worker would take most of an accelerator's memory
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        jax.config.update("jax_compilation_cache_dir", str(cache_folder("jax")))
    answer_all(connection, _Player(makers, policy, places).play)


class _Chunks:
    """Places of episodes; place p belongs to worker p % W, which plays all of its places together."""

    def __init__(self, processes: Processes, places: int) -> None:
        self._processes, self._places = processes, places
        self._waiting: dict[int, dict[int, Task]] = {}
        self._playing: dict[int, list[int]] = {}

    def __len__(self) -> int:
        return len(self._processes)

    def free(self) -> list[int]:
        count = len(self)
        idle = [worker for worker in range(count) if worker not in self._playing]
        places = [count * row + worker for row in range(self._places) for worker in idle]
        return [place for place in places if place not in self._waiting.get(place % count, {})]

    def start(self, place: int, task: Task) -> None:
        self._waiting.setdefault(place % len(self), {})[place] = task

    def finished(self) -> list[tuple[int, Episode | str]]:
        for worker, tasks in self._waiting.items():
            self._playing[worker] = list(tasks)
            self._processes.start(worker, list(tasks.values()))
        self._waiting = {}
        answers: list[tuple[int, Episode | str]] = []
        for worker, answer in self._processes.finished():
            places = self._playing.pop(worker)
            each = [answer] * len(places) if isinstance(answer, str) else answer
            answers.extend(zip(places, each, strict=True))
        return answers

    def abandon(self) -> None:
        self._processes.abandon()
        self._waiting, self._playing = {}, {}

    def close(self) -> None:
        self._processes.close()


class BatchPool(Evaluator):
    """Workers on this machine, each of which plays many episodes in lock step in one compiled program.

    If one dies, hangs or raises, its episodes are repeated. Results do not depend on the number of workers.
    """

    def __init__(
        self,
        environments: Mapping[str, Callable[[], Worlds]],
        policy: Policy,
        workers: int,
        places: int,
        deadline: float = DEADLINE,
    ) -> None:
        """Start the workers.

        Args:
          environments: functions, which can be pickled, that make the environments, by label.
          policy: plays with the parameters of each candidate.
          workers: number of processes.
          places: number of episodes that a worker plays at once.
          deadline: seconds for these; a slower worker is replaced.

        Raises ValueError for a number of workers that this machine cannot hold.
        """
        check_workers(workers, WORKER)
        arguments = tuple(environments.values()), policy, places
        super().__init__(
            tuple(environments), _Chunks(Processes(serve_chunks, arguments, workers, deadline), places)
        )
