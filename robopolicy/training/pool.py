"""The default evaluator: a pool of rollout workers on this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from robopolicy.runtime.compiled import CGraph
from robopolicy.training.capacity import check_workers
from robopolicy.training.evaluate import DEADLINE, Evaluator
from robopolicy.training.worker import EnvironmentSpec, serve

PATIENCE = 2.0  # s, for workers to end by themselves
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "PJRT_NPROC")


class _Worker:
    """A spawned process that runs `serve(pipe, *arguments)`, and the pipe to it."""

    def __init__(self, serve: Callable[..., None], arguments: tuple[object, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection[Any, Any]
        self.pipe, far = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_run, args=(serve, far, *arguments), daemon=True)
        with _inheritable():
            self.process.start()
        far.close()

    def kill(self) -> str:
        """End the process at once; returns how it ended, in words."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return f"its worker ended with exit code {self.process.exitcode}"


def _run(serve: Callable[..., None], far: Connection[Any, Any], *arguments: Any) -> None:
    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    serve(far, *arguments)


def _end_with_the_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def _inheritable() -> Iterator[None]:
    """Let a new process inherit one thread per library, but no Ctrl-C and no script: workers share the cores.

    Ctrl-C reaches the whole group of processes, but only the trainer reacts to it. A process inherits the
    mask of signals, so the mask holds from its first instruction on.
    """
    resource_tracker.ensure_running()  # the start of a process would start it and lift the mask
    before = {name: os.environ.get(name) for name in THREADS}
    main = sys.modules["__main__"]
    script = {name: main.__dict__.pop(name, None) for name in ("__file__", "__spec__")}
    main.__spec__ = None  # a worker does not run the script that started the training
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        main.__dict__.update({name: value for name, value in script.items() if value is not None})
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Processes:
    """One place per process. A process that dies or hangs is replaced."""

    def __init__(
        self, serve: Callable[..., None], arguments: tuple[object, ...], workers: int, deadline: float
    ) -> None:
        """Start `workers` processes that run `serve(pipe, *arguments)`; `deadline` (s) is for one answer."""
        self._serve, self._arguments, self._deadline = serve, arguments, deadline
        self._workers = [self._new_worker() for _ in range(workers)]
        self._since: dict[int, float] = {}  # when each busy place started (s)

    def _new_worker(self) -> _Worker:
        return _Worker(self._serve, self._arguments)

    def __len__(self) -> int:
        """The number of places."""
        return len(self._workers)

    def free(self) -> list[int]:
        """The idle places."""
        return [place for place in range(len(self)) if place not in self._since]

    def start(self, place: int, task: Any) -> None:
        """Send `task` to an idle place; `finished` reports a process that has just died."""
        self._since[place] = time.monotonic()
        with suppress(BrokenPipeError, ConnectionResetError):
            self._workers[place].pipe.send(task)

    def finished(self) -> list[tuple[int, Any]]:
        """Places that answered or failed, with the answer or the reason in words; waits 5 s at most."""
        busy = {place: self._workers[place] for place in self._since}
        ready = set(wait([h for w in busy.values() for h in (w.pipe, w.process.sentinel)], timeout=5.0))
        answers: list[tuple[int, Any]] = []
        for place, worker in busy.items():
            if worker.pipe in ready:
                try:
                    answers.append((place, worker.pipe.recv()))
                except (EOFError, OSError):  # a worker that dies may cut off its answer
                    answers.append((place, self._replace(place)))
            elif worker.process.sentinel in ready:
                answers.append((place, self._replace(place)))
            elif time.monotonic() - self._since[place] >= self._deadline:
                self._replace(place)
                answers.append((place, f"it took longer than the deadline of {self._deadline:g} s"))
        for place, _ in answers:
            del self._since[place]
        return answers

    def _replace(self, place: int) -> str:
        """Start a new worker in the place of a dead or hanging one. Returns how the old one ended."""
        self._workers[place].process.join(timeout=0.5)  # a worker that is ending keeps its own exit code
        ended = self._workers[place].kill()
        self._workers[place] = self._new_worker()
        return ended

    def abandon(self) -> None:
        """Discard all answers that are still to come."""
        for place in self._since:
            self._workers[place].kill()
            self._workers[place] = self._new_worker()
        self._since = {}

    def close(self) -> None:
        """End all processes at the same time."""
        for worker in self._workers:
            worker.pipe.close()
        until = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.process.join(max(0.0, until - time.monotonic()))
            worker.kill()
        self._workers = []


class LocalPool(Evaluator):
    """Workers on this machine. If one dies, hangs or raises, its own episode is repeated, and no other."""

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        model: bytes | CGraph,
        workers: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
    ) -> None:
        """Start the workers.

        Args:
          environments: the environments that they play.
          model: ONNX graph with an input `parameters`, and an input `normaliser` if it normalises
            observations; or the same graph as C.
          workers: number of processes.
          deadline: seconds for one episode; a slower worker is replaced.
          watched: vector observations whose moments are part of each Episode.

        Raises ValueError for a number of workers that this machine cannot hold.
        """
        check_workers(workers)
        arguments = (tuple(environments), model, watched)
        super().__init__(
            [spec.label for spec in environments], Processes(serve, arguments, workers, deadline)
        )
