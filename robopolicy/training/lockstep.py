"""The evaluator for an accelerator: many environments in lock step, one policy call for all of them.

Environments run in worker processes; the policy runs here, as one call of `jax.vmap` over all episodes in
progress, each with the parameters of its own candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.training.capacity import check_workers
from robopolicy.training.evaluate import DEADLINE, Dispatcher
from robopolicy.training.processes import WorkerProcess
from robopolicy.training.rollout import Episode, Playing
from robopolicy.training.worker import EnvironmentSpec, Task, words

Act = Callable[..., Array]
Observation = Mapping[str, NDArray[np.float32]]


class Begin(NamedTuple):
    """Start an episode in a place: which environment, and the seed."""

    environment: int
    seed: int


def serve_steps(
    connection: Connection[Any, Any], environments: tuple[EnvironmentSpec, ...], watched: tuple[str, ...]
) -> None:
    """Answer every {place: Begin or action} with {place: observation, Episode or an error's words}."""
    made: dict[tuple[int, int], Any] = {}
    playing: dict[int, Playing] = {}
    environment: dict[int, int] = {}

    def advance(place: int, order: Begin | NDArray[np.float32]) -> Observation | Episode:
        if isinstance(order, Begin):
            environment[place] = order.environment
            where = place, order.environment
            if where not in made:
                made[where] = environments[order.environment].make()
            playing[place] = Playing(made[where], order.seed, watched)
            return playing[place].observation
        _, episode = playing[place].step(order)
        return playing[place].observation if episode is None else episode

    while True:
        try:
            orders = connection.recv()
        except (EOFError, OSError):  # the trainer is gone, or done
            break
        answers: dict[int, Any] = {}
        for place, order in orders.items():
            try:
                answers[place] = advance(place, order)
            except Exception as error:  # whatever a user's environment raises is the trainer's to report
                made.pop((place, environment[place]), None)
                answers[place] = words(error)
        try:
            connection.send(answers)
        except OSError:
            break
    for env in made.values():
        env.close()


class _Batch:
    """Places that advance together; place p lives in process p % workers."""

    def __init__(
        self,
        environments: tuple[EnvironmentSpec, ...],
        act: Act,
        workers: int,
        places: int,
        deadline: float,
        watched: tuple[str, ...],
    ) -> None:
        self._given, self._deadline, self.places = (environments, watched), deadline, places
        self.workers = [self._started() for _ in range(workers)]
        self._act = jax.jit(_batched(act))
        self._parameters: NDArray[np.float32] | None = None
        self._normaliser: NDArray[np.float32] | None = None
        self._on_device: Array | None = None
        self._orders: dict[int, Begin] = {}
        self._seen: dict[int, Observation] = {}

    def _started(self) -> WorkerProcess:
        return WorkerProcess(serve_steps, *self._given)

    def free(self) -> list[int]:
        return [p for p in range(self.places) if p not in self._seen and p not in self._orders]

    def start(self, place: int, task: Task) -> None:
        self._orders[place] = Begin(task.environment, task.seed)
        if self._parameters is None or self._parameters.shape[1] != task.parameters.size:
            self._parameters = np.zeros((self.places, task.parameters.size), np.float32)
        self._parameters[place], self._normaliser = task.parameters, task.normaliser
        self._on_device = None

    def finished(self) -> list[tuple[int, Episode | str]]:
        """Advance every place once."""
        orders: dict[int, Any] = {**self._orders, **self._actions()}
        self._orders = {}
        answers: list[tuple[int, Episode | str]] = []
        for place, answer in self._exchanged(orders).items():
            if isinstance(answer, (Episode, str)):
                self._seen.pop(place, None)
                answers.append((place, answer))
            else:
                self._seen[place] = answer
        return answers

    def _actions(self) -> dict[int, NDArray[np.float32]]:
        """What the policies do in every place that has seen something."""
        if not self._seen:
            return {}
        if self._on_device is None:
            self._on_device = jnp.asarray(self._parameters)
        # One shape for all calls: where nothing is played any more, some other place's view is repeated.
        some = next(iter(self._seen.values()))
        views = [self._seen.get(place, some) for place in range(self.places)]
        batch = {name: np.stack([view[name] for view in views]) for name in some}
        normaliser = () if self._normaliser is None else (self._normaliser,)
        actions = np.asarray(self._act(self._on_device, batch, *normaliser))
        return {place: actions[place] for place in self._seen}

    def _exchanged(self, orders: dict[int, Any]) -> dict[int, Any]:
        """Send every process its orders and collect the answers; a process that fails loses its episodes."""
        count = len(self.workers)
        shares = [{p: o for p, o in orders.items() if p % count == w} for w in range(count)]
        for worker, share in zip(self.workers, shares, strict=True):
            if share:
                worker.send(share)
        answers: dict[int, Any] = {}
        for index, (worker, share) in enumerate(zip(self.workers, shares, strict=True)):
            if not share:
                continue
            ready = wait([worker.pipe, worker.process.sentinel], timeout=self._deadline)
            try:
                if worker.pipe not in ready:
                    raise EOFError
                answers |= worker.pipe.recv()
            except (EOFError, OSError):  # an answer may have been cut off, too
                ended = worker.kill() if ready else f"a step took longer than {self._deadline:g} s"
                worker.kill()
                self.workers[index] = self._started()
                answers |= dict.fromkeys(share, ended)
        return answers

    def abandon(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.workers = [self._started() for _ in self.workers]
        self._orders, self._seen = {}, {}


def _batched(act: Act) -> Act:
    """`act` for many parameters and observations at once, which share a normaliser."""
    return lambda parameters, seen, *normaliser: jax.vmap(lambda p, o: act(p, o, *normaliser))(
        parameters, seen
    )


class LockStep(Dispatcher):
    """All episodes advance together, and one call of the policy serves them all.

    Returns are those of `LocalPool` as far as the policy's rounding is: JAX rounds otherwise than
    onnxruntime, and where two choices are equal to seven digits they may choose differently.
    """

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        act: Act,
        workers: int,
        places: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
    ) -> None:
        """Start the worker processes.

        Args:
          environments: what they play on.
          act: (parameters [P], observation) -> action [A], pure; it is compiled for `places` at once. Where
            evaluations are given a normaliser [2K], it is a third argument.
          workers: how many processes the environments are spread over.
          places: how many environments there are, and episodes in progress.
          deadline: seconds for one step of a process's environments.
          watched: vector observations whose moments are part of each Episode.
        """
        check_workers(workers)
        if places < 1:
            raise ValueError(f"places is {places}: it must be 1 or more")
        self._batch = _Batch(tuple(environments), act, workers, places, deadline, watched)
        super().__init__(environments, self._batch)

    @property
    def workers(self) -> int:
        """See `Evaluator`."""
        return self._batch.places

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [w.process.pid for w in self._batch.workers if w.process.pid is not None]

    def close(self) -> None:
        """End all workers."""
        for worker in self._batch.workers:
            worker.stop()
        self._batch.workers = []
