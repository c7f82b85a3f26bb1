"""The default evaluator: a supervised pool of rollout workers on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from robopolicy.training.capacity import check_workers
from robopolicy.training.evaluate import DEADLINE, Dispatcher
from robopolicy.training.processes import WorkerProcess
from robopolicy.training.worker import EnvironmentSpec, serve

PATIENCE = 2.0  # s, for workers to end by themselves


class Processes:
    """One place a process, each of which answers what it is sent; one that dies or hangs is replaced."""

    def __init__(
        self, serve: Callable[..., None], given: tuple[object, ...], workers: int, deadline: float
    ) -> None:
        """Start `workers` processes that run `serve(pipe, *given)`; `deadline` (s) is for one answer."""
        self._serve, self._given, self._deadline = serve, given, deadline
        self.workers = [self._started() for _ in range(workers)]
        self._since: dict[int, float] = {}

    def _started(self) -> WorkerProcess:
        return WorkerProcess(self._serve, *self._given)

    def free(self) -> list[int]:
        """Places that have nothing to do."""
        return [place for place in range(len(self.workers)) if place not in self._since]

    def start(self, place: int, task: Any) -> None:
        """Send `task` to a place that is free."""
        self._since[place] = time.monotonic()
        self.workers[place].send(task)

    def finished(self) -> list[tuple[int, Any]]:
        """Places that have answered or failed, with the answer or the failure in words; waits 5 s at most."""
        busy = {place: self.workers[place] for place in self._since}
        ready = set(wait([h for w in busy.values() for h in (w.pipe, w.process.sentinel)], timeout=5.0))
        answers: list[tuple[int, Any]] = []
        for place, worker in busy.items():
            if worker.pipe in ready:
                try:
                    answers.append((place, worker.pipe.recv()))
                except (EOFError, OSError):  # an answer may have been cut off, too
                    answers.append((place, self._replaced(place)))
            elif worker.process.sentinel in ready:
                answers.append((place, self._replaced(place)))
            elif time.monotonic() - self._since[place] >= self._deadline:
                why = f"it took longer than the deadline of {self._deadline:g} s"
                self._replaced(place)
                answers.append((place, why))
        for place, _ in answers:
            del self._since[place]
        return answers

    def _replaced(self, place: int) -> str:
        """Put a new worker into the place of a dead or a hanging one. Returns how that one ended."""
        self.workers[place].process.join(timeout=0.5)  # of one that is ending, wait for its own exit code
        ended = self.workers[place].kill()
        self.workers[place] = self._started()
        return ended

    def abandon(self) -> None:
        """Forget whatever is still to be answered."""
        for place in self._since:
            self.workers[place].kill()
            self.workers[place] = self._started()
        self._since = {}

    def close(self) -> None:
        """End all processes, together."""
        for worker in self.workers:
            worker.pipe.close()
        until = time.monotonic() + PATIENCE
        for worker in self.workers:
            worker.stop(max(0.0, until - time.monotonic()))
        self.workers = []


class LocalPool(Dispatcher):
    """Workers on this machine. One that dies, hangs or raises costs its own episode again, and no other."""

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        model: bytes,
        workers: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
    ) -> None:
        """Start the workers.

        Args:
          environments: what they play on.
          model: ONNX graph with `parameters` as an input, and `normaliser` if it normalises observations.
          workers: how many processes.
          deadline: seconds for one episode; a worker that needs longer is replaced.
          watched: vector observations whose moments are part of each Episode.
        """
        check_workers(workers)
        self._processes = Processes(serve, (tuple(environments), model, watched), workers, deadline)
        super().__init__(environments, self._processes)

    @property
    def workers(self) -> int:
        """See `Evaluator`."""
        return len(self._processes.workers)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [w.process.pid for w in self._processes.workers if w.process.pid is not None]

    def close(self) -> None:
        """End all workers."""
        self._processes.close()
