"""Returns of a population of policies, from a supervised pool of rollout workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.rollout import Episode
from robopolicy.training.worker import EnvironmentSpec, Task, serve

TRIES = 3  # of one episode, before its failure is the run's


class EpisodeError(RuntimeError):
    """An episode that failed every time it was tried."""


class Evaluations(NamedTuple):
    """What a population did: `episodes[n][e]` of candidate n with seed e."""

    episodes: list[list[Episode]]

    @property
    def returns(self) -> NDArray[np.float64]:
        """[N, E]."""
        return np.array([[episode.total for episode in row] for row in self.episodes])

    def outcome(self, name: str) -> NDArray[np.float64]:
        """An entry of the episodes' last info, [N, E]."""
        return np.array([[float(episode.info[name]) for episode in row] for row in self.episodes])


class Evaluator(Protocol):
    """Plays every candidate of a population with every seed, on one of its environments.

    The result depends on the parameters and the seeds alone, not on how the work was spread.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """The environments, in the order of a curriculum: the last one is what is to be learnt."""

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
    ) -> Evaluations:
        """Evaluate `population` [N, P]; `on_episode` is called as each episode comes in."""

    def close(self) -> None:
        """Release the workers."""


class _Worker:
    """A process, the pipe to it, and the index of the task that it works on."""

    def __init__(self, environments: tuple[EnvironmentSpec, ...], model: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection[Any, Any]
        self.pipe, far = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(far, environments, model), daemon=True
        )
        with _one_thread_each(), _ctrl_c_kept_away():
            self.process.start()
        far.close()
        self.task: int | None = None
        self.started = 0.0

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=2.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers share the cores by being many; their libraries must not multiply that."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _ctrl_c_kept_away() -> Iterator[None]:
    """Ctrl-C reaches the whole group of processes, and the trainer decides what it means.

    A mask is inherited, so it holds from a worker's first instruction on.
    """
    resource_tracker.ensure_running()  # started later, by the worker's start, it would lift the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LocalPool:
    """Workers on this machine. One that dies, hangs or raises costs its own episode again, and no other."""

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        model: bytes,
        workers: int,
        deadline: float = 600.0,
    ) -> None:
        """`model`: ONNX graph with `parameters` as an input; `deadline`: seconds for one episode."""
        if workers < 1:
            raise ValueError(f"workers is {workers}: it must be 1 or more")
        self._environments, self._model, self._deadline = tuple(environments), model, deadline
        self._workers = [_Worker(self._environments, model) for _ in range(workers)]

    @property
    def labels(self) -> tuple[str, ...]:
        """See `Evaluator`."""
        return tuple(spec.label for spec in self._environments)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
    ) -> Evaluations:
        """See `Evaluator`. Raises EpisodeError for an episode that fails three times."""
        try:
            return self._evaluate(np.asarray(population, np.float32), seeds, environment, on_episode)
        except BaseException:
            # Answers that are still to come belong to nobody.
            for slot, worker in enumerate(self._workers):
                if worker.task is not None:
                    worker.process.kill()
                    self._replaced(slot)
                    self._workers[slot].task = None
            raise

    def _evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int,
        on_episode: Callable[[], None] | None,
    ) -> Evaluations:
        environment %= len(self._environments)
        places = list(np.ndindex((len(population), len(seeds))))
        episodes: list[Episode | None] = [None] * len(places)
        failures = [0] * len(places)
        waiting = deque(range(len(places)))
        missing = len(places)
        while missing:
            for slot, worker in enumerate(self._workers):
                if worker.task is None and waiting:
                    index = waiting.popleft()
                    n, e = places[index]
                    self._give(slot, index, Task(environment, population[n], int(seeds[e])))
            for slot, answer in self._answers():
                task, self._workers[slot].task = self._workers[slot].task, None
                index = -1 if task is None else task
                if isinstance(answer, Episode):
                    episodes[index] = answer
                    missing -= 1
                    if on_episode is not None:
                        on_episode()
                    continue
                failures[index] += 1
                if failures[index] == TRIES:
                    n, e = places[index]
                    raise EpisodeError(
                        f"candidate {n} failed {TRIES} times with seed {seeds[e]} "
                        f"on {self._environments[environment].label}: {answer}"
                    )
                waiting.appendleft(index)
        grouped = iter(episodes)
        return Evaluations([[_present(next(grouped)) for _ in seeds] for _ in population])

    def _give(self, slot: int, index: int, task: Task) -> None:
        worker = self._workers[slot]
        worker.task, worker.started = index, time.monotonic()
        # A worker that has just died is found by `_answers`, which reports its task as failed.
        try:
            worker.pipe.send(task)
        except (BrokenPipeError, ConnectionResetError):
            worker.process.join(timeout=2.0)

    def _answers(self) -> list[tuple[int, Episode | str]]:
        """Wait for something to happen; replace workers that are gone."""
        busy = {slot: worker for slot, worker in enumerate(self._workers) if worker.task is not None}
        handles = [h for w in busy.values() for h in (w.pipe, w.process.sentinel)]
        ready = set(wait(handles, timeout=5.0))
        answers: list[tuple[int, Episode | str]] = []
        for slot, worker in busy.items():
            if worker.pipe in ready:
                try:
                    answers.append((slot, worker.pipe.recv()))
                    continue
                except (EOFError, ConnectionResetError):
                    pass
            elif worker.process.sentinel not in ready:
                if time.monotonic() - worker.started < self._deadline:
                    continue
                worker.process.kill()
            answers.append((slot, self._replaced(slot)))
        return answers

    def _replaced(self, slot: int) -> str:
        """Put a new worker into the place of a dead one; its task goes with it. Returns what happened."""
        old = self._workers[slot]
        old.process.join()
        code = old.process.exitcode
        old.pipe.close()
        self._workers[slot] = _Worker(self._environments, self._model)
        self._workers[slot].task = old.task
        return f"its worker ended with exit code {code}"

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop()
        self._workers = []


def _present(episode: Episode | None) -> Episode:
    assert episode is not None
    return episode
