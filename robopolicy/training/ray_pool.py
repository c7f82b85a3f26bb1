"""The evaluator for a cluster: rollout workers as Ray actors."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from robopolicy.training.evaluate import DEADLINE, TRIES, Dispatcher, EpisodeError
from robopolicy.training.rollout import Episode
from robopolicy.training.worker import EnvironmentSpec, Player, Task, words

ANSWERS_WITHIN = 5.0  # s, of a cluster's head


def connect(address: str | None, workers: int) -> None:
    """Join the cluster at `address` ("auto", or host:port), or start one on this machine.

    Where this process has joined one before, it stays in that. Raises ValueError where Ray is not installed
    or nothing answers at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise ValueError("evaluator is 'ray': it needs Ray: pip install ray") from error
    if ray.is_initialized():
        return
    if address is None:
        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        return
    _answering(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ValueError(f"address is {address!r}: {str(error).splitlines()[0]}") from error


def _in_a_cluster() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _answering(address: str) -> None:
    """Raise ValueError where nothing listens, which Ray finds out after a minute and at length."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address is {address!r}: it must be 'auto', host:port or ray://host:port")
    try:
        socket.create_connection((host, int(port)), ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"address is {address!r}: no Ray cluster answers there ({error})") from error


class _Actor(Player):
    """A player that returns its process id."""

    def pid(self) -> int:
        return os.getpid()


class _Actors:
    """One place an actor. For one that is lost, Ray finds room for another on whatever node is left.

    Until it has, the place is not free: a smaller cluster plays on with what it has.
    """

    def __init__(self, given: tuple[object, ...], workers: int, deadline: float) -> None:
        import ray

        self.ray, self._given, self._deadline = ray, given, deadline
        self._actor_class = ray.remote(num_cpus=1, max_restarts=0)(_Actor)
        self._starting: dict[Any, int] = {}
        self._playing: dict[Any, tuple[int, float]] = {}
        self.actors: list[Any] = [None] * workers
        for place in range(workers):
            self._start_actor(place)
        self._waiting: float | None = None  # since when no worker has been alive
        self._failed = 0  # starts in a row that came to nothing

    def _start_actor(self, place: int) -> None:
        self.actors[place] = self._actor_class.remote(*self._given)
        self._starting[self.actors[place].pid.remote()] = place

    def free(self) -> list[int]:
        busy = {place for place, _ in self._playing.values()} | set(self._starting.values())
        return [place for place in range(len(self.actors)) if place not in busy]

    def start(self, place: int, task: Task) -> None:
        self._playing[self.actors[place].play.remote(task)] = place, time.monotonic()

    def finished(self) -> list[tuple[int, Episode | str]]:
        ready, _ = self.ray.wait([*self._playing, *self._starting], num_returns=1, timeout=5.0)
        answers: list[tuple[int, Episode | str]] = []
        for reference in ready:
            if reference in self._starting:
                self._started(reference)
                continue
            place, _ = self._playing.pop(reference)
            answers.append((place, self._answer(place, reference)))
        now = time.monotonic()
        late = [r for r, (_, since) in self._playing.items() if now - since >= self._deadline]
        for reference in late:
            place, _ = self._playing.pop(reference)
            self._replace(place)
            answers.append((place, f"it took longer than the deadline of {self._deadline:g} s"))
        alive = self._playing or (ready and not self._failed)
        self._waiting = None if alive else self._waiting or now
        if self._waiting is not None and now - self._waiting >= self._deadline:
            raise EpisodeError(f"no worker has started in {self._deadline:g} s: the cluster has no free CPU")
        return answers

    def _started(self, reference: Any) -> None:
        place = self._starting.pop(reference)
        try:
            self.ray.get(reference)
            self._failed = 0
        except self.ray.exceptions.RayActorError as error:  # lost before it had begun
            self._failed += 1
            if self._failed >= TRIES * len(self.actors):
                last = [line for line in str(error).splitlines() if line.strip()][-1].strip()
                raise EpisodeError(f"no worker can be started on the cluster: {last}") from error
            self._start_actor(place)

    def _answer(self, place: int, reference: Any) -> Episode | str:
        try:
            episode: Episode = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            return words(error.cause) if isinstance(error.cause, Exception) else str(error)
        except self.ray.exceptions.RayError as error:
            self._replace(place)
            return f"its worker was lost: {type(error).__name__}"
        return episode

    def _replace(self, place: int) -> None:
        self.ray.kill(self.actors[place])
        self._start_actor(place)

    def abandon(self) -> None:
        for place, _ in self._playing.values():
            self._replace(place)
        self._playing = {}

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        self.actors = []


class RayPool(Dispatcher):
    """Workers on a Ray cluster. One that is lost, with its node or alone, costs its own episode again."""

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        model: bytes,
        workers: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
        address: str | None = None,
    ) -> None:
        """As `LocalPool`; `address` is that of a running cluster, and without it one is started here."""
        if workers < 1:
            raise ValueError(f"workers is {workers}: it must be 1 or more")
        self._joined = not _in_a_cluster()
        connect(address, workers)
        self._actors = _Actors((tuple(environments), model, watched), workers, deadline)
        super().__init__(environments, self._actors)

    @property
    def workers(self) -> int:
        """See `Evaluator`."""
        return len(self._actors.actors)

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        actors = self._actors.actors
        return list(self._actors.ray.get([actor.pid.remote() for actor in actors]))

    def close(self) -> None:
        """End all workers; leave the cluster if it was joined for them, and end it if it was started."""
        self._actors.close()
        if self._joined:
            self._actors.ray.shutdown()
