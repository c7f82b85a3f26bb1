"""A supervised process at the end of a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any


class WorkerProcess:
    """A spawned process that runs `serve(pipe, *given)`, and the pipe to it."""

    def __init__(self, serve: Callable[..., None], *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection[Any, Any]
        self.pipe, far = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_run, args=(serve, far, *given), daemon=True)
        with _one_thread_each(), _ctrl_c_kept_away():
            self.process.start()
        far.close()

    def send(self, message: Any) -> None:
        """Send; that a process has just died is found while waiting for its answer."""
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self.process.join(timeout=2.0)

    def kill(self) -> str:
        """End the process, whatever it is doing; returns how it ended."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return f"its worker ended with exit code {self.process.exitcode}"

    def stop(self, patience: float = 2.0) -> None:
        """Let the process end, and make it if it has not after `patience` seconds."""
        self.pipe.close()
        self.process.join(timeout=patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _run(serve: Callable[..., None], far: Connection[Any, Any], *given: Any) -> None:
    threading.Thread(target=_end_with_the_trainer, daemon=True).start()
    serve(far, *given)


def _end_with_the_trainer() -> None:
    """However the trainer ends, and whatever the process is doing."""
    trainer = parent_process()
    if trainer is not None:
        wait([trainer.sentinel])
        os._exit(1)


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
