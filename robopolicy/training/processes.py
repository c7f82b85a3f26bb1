"""A worker process at the end of a pipe."""

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

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """A spawned process that runs `serve(pipe, *arguments)`, and the pipe to it."""

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe: Connection[Any, Any]
        self.pipe, far = context.Pipe()
        self.process: SpawnProcess = context.Process(target=_run, args=(serve, far, *arguments), daemon=True)
        with _inheritable():
            self.process.start()
        far.close()

    def send(self, message: Any) -> None:
        """Send; the wait for the answer detects a process that has just died."""
        try:
            self.pipe.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self.process.join(timeout=2.0)

    def kill(self) -> str:
        """End the process at once; returns how it ended, in words."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return f"its worker ended with exit code {self.process.exitcode}"

    def stop(self, patience: float) -> None:
        """Let the process end by itself, and kill it after `patience` seconds."""
        self.pipe.close()
        self.process.join(timeout=patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


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
    """Let a new process inherit one thread per library, since workers share the cores, and no Ctrl-C.

    Ctrl-C reaches the whole group of processes, but only the trainer reacts to it. A process inherits the
    mask of signals, so the mask holds from its first instruction on.
    """
    resource_tracker.ensure_running()  # the start of a process would start it and lift the mask
    before = {name: os.environ.get(name) for name in THREADS}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
