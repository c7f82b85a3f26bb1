"""The evaluator for a cluster: rollout workers as Ray actors."""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from robopolicy.runtime.compiled import CGraph
from robopolicy.training.evaluate import DEADLINE, TRIES, EpisodeError, Evaluator
from robopolicy.training.rollout import Episode
from robopolicy.training.worker import EnvironmentSpec, Player, Task, error_line

TIMEOUT = 5.0  # s, for a connection to a cluster's head


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError("evaluator is 'ray': it needs Ray: pip install ray") from error
    return ray


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Keep the handler of SIGTERM. Ray sets its own as it starts, and the system's default as it ends."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # Only the main thread sets handlers. None is one that Python has not set.
        if threading.current_thread() is threading.main_thread() and before is not None:
            signal.signal(signal.SIGTERM, before)


def check_cluster(address: str | None) -> None:
    """Raise ValueError if Ray is not installed, or if no cluster answers at `address` (None: not needed)."""
    _ray()
    if address is not None and _connect(address, 1):
        _leave()


@_sigterm_kept()
def _leave() -> None:
    """Leave the cluster, or end it if this process has started it."""
    _ray().shutdown()


@_sigterm_kept()
def _connect(address: str | None, workers: int) -> bool:
    """Join the cluster at `address` ("auto" or host:port), or start one here; False if already connected.

    A process that is already connected stays in its cluster. Raises ValueError as `check_cluster` does.
    """
    ray = _ray()
    if ray.is_initialized():
        return False
    settings = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None:
        # Without "local", Ray joins a cluster that somebody else has started on this machine.
        ray.init("local", num_cpus=workers, include_dashboard=False, **settings)
        return True
    _check_port(address)
    try:
        ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"address is {address!r}: {str(error).splitlines()[0]}") from error
    return True


def _check_port(address: str) -> None:
    """Raise ValueError if nothing listens at `address`; Ray itself needs a minute and reports at length."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"address is {address!r}: it must be 'auto', host:port or ray://host:port")
    try:
        socket.create_connection((host, int(port)), TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"address is {address!r}: no Ray cluster answers there ({error})") from error


class _Actors:
    """One place per actor. A lost actor is replaced on any node that has room.

    The place is not free until the new actor has started, so a smaller cluster continues with fewer places.
    """

    def __init__(self, arguments: tuple[object, ...], workers: int, deadline: float) -> None:
        self._ray, self._arguments, self._deadline = _ray(), arguments, deadline
        self._actor_class = self._ray.remote(num_cpus=1, max_restarts=0)(Player)
        self._starting: dict[Any, int] = {}
        self._playing: dict[Any, tuple[int, float]] = {}  # place, and start time (s)
        self._actors: list[Any] = [None] * workers
        for place in range(workers):
            self._start_actor(place)
        self._idle_since: float | None = None  # when the last worker was lost
        self._failed_starts = 0  # in a row

    def __len__(self) -> int:
        return len(self._actors)

    def _start_actor(self, place: int) -> None:
        self._actors[place] = self._actor_class.remote(*self._arguments)
        self._starting[self._actors[place].prepare.remote()] = place

    def free(self) -> list[int]:
        busy = {place for place, _ in self._playing.values()} | set(self._starting.values())
        return [place for place in range(len(self)) if place not in busy]

    def start(self, place: int, task: Task) -> None:
        self._playing[self._actors[place].play.remote(task)] = place, time.monotonic()

    def finished(self) -> list[tuple[int, Episode | str]]:
        ready, _ = self._ray.wait([*self._playing, *self._starting], num_returns=1, timeout=5.0)
        answers: list[tuple[int, Episode | str]] = []
        for reference in ready:
            if reference in self._starting:
                self._check_started(reference)
                continue
            place, _ = self._playing.pop(reference)
            answers.append((place, self._answer(place, reference)))
        now = time.monotonic()
        late = [r for r, (_, since) in self._playing.items() if now - since >= self._deadline]
        for reference in late:
            place, _ = self._playing.pop(reference)
            self._replace(place)
            answers.append((place, f"it took longer than the deadline of {self._deadline:g} s"))
        alive = self._playing or (ready and not self._failed_starts)
        self._idle_since = None if alive else self._idle_since or now
        if self._idle_since is not None and now - self._idle_since >= self._deadline:
            raise EpisodeError(f"no worker has started in {self._deadline:g} s: the cluster has no free CPU")
        return answers

    def _check_started(self, reference: Any) -> None:
        place = self._starting.pop(reference)
        try:
            self._ray.get(reference)
            self._failed_starts = 0
        except self._ray.exceptions.RayTaskError as error:
            raise EpisodeError(f"a worker cannot start on the cluster: {error_line(error.cause)}") from error
        except self._ray.exceptions.RayActorError as error:
            self._failed_starts += 1
            if self._failed_starts >= TRIES * len(self):
                last = [line for line in str(error).splitlines() if line.strip()][-1].strip()
                raise EpisodeError(f"no worker can be started on the cluster: {last}") from error
            self._start_actor(place)

    def _answer(self, place: int, reference: Any) -> Episode | str:
        try:
            episode: Episode = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            return error_line(error.cause) if isinstance(error.cause, Exception) else str(error)
        except self._ray.exceptions.RayError as error:
            self._replace(place)
            return f"its worker was lost: {type(error).__name__}"
        return episode

    def _replace(self, place: int) -> None:
        self._ray.kill(self._actors[place])
        self._start_actor(place)

    def abandon(self) -> None:
        for place, _ in self._playing.values():
            self._replace(place)
        self._playing = {}

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []


class RayPool(Evaluator):
    """Workers on a Ray cluster. The episodes of a lost worker or node are repeated, and no others."""

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        model: bytes | CGraph,
        workers: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
        address: str | None = None,
    ) -> None:
        """Start the workers; see `LocalPool` for the other arguments.

        `address` is that of a running cluster ("auto" or host:port); None starts one on this machine. If this
        process is already connected to a cluster, the workers run there.

        Raises ValueError if Ray is not installed, no cluster answers, or `workers` is below 1.
        """
        if workers < 1:
            raise ValueError(f"workers is {workers}: it must be 1 or more")
        self._connected = _connect(address, workers)
        super().__init__(
            [spec.label for spec in environments],
            _Actors((tuple(environments), model, watched), workers, deadline),
        )

    def close(self) -> None:
        """End all workers, and leave or end the cluster that this pool joined or started."""
        super().close()
        if self._connected:
            _leave()
