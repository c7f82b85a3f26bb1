"""The evaluator for an accelerator: many environments in lock step, with one policy call for all of them.

Environments run in worker processes. The policy runs in this process: one call of `jax.vmap` covers all
episodes in progress, each with the parameters of its own candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.training.capacity import check_workers
from robopolicy.training.evaluate import DEADLINE, Evaluator
from robopolicy.training.pool import Processes
from robopolicy.training.rollout import Episode, Playing
from robopolicy.training.worker import Environments, EnvironmentSpec, Task, answer_all, error_line
from robopolicy.training.worlds import repeated

Act = Callable[..., tuple[Array, Any]]
Observation = Mapping[str, NDArray[np.float32]]


class Begin(NamedTuple):
    """The order to start an episode: index of the environment, and seed."""

    environment: int
    seed: int


class _Stepper:
    """The environments of one worker process, by place and index."""

    def __init__(self, environments: tuple[EnvironmentSpec, ...], watched: tuple[str, ...]) -> None:
        self._specs, self._watched = environments, watched
        self._index: dict[int, int] = {}
        self._playing: dict[int, Playing] = {}
        self._environments = Environments()

    def answer(self, orders: Mapping[int, Begin | NDArray[np.float32]]) -> dict[int, object]:
        """For each place its next observation, its Episode, or an error in words."""
        answers: dict[int, object] = {}
        for place, order in orders.items():
            try:
                answers[place] = self._advance(place, order)
            except Exception as error:  # an environment may raise anything; the trainer reports it
                answers[place] = error_line(error)
        return answers

    def _advance(self, place: int, order: Begin | NDArray[np.float32]) -> Observation | Episode:
        if isinstance(order, Begin):
            self._index[place] = order.environment
        index = self._index[place]
        with self._environments.using((place, index), self._specs[index]) as env:
            if isinstance(order, Begin):
                self._playing[place] = Playing(env, order.seed, self._watched)
                return self._playing[place].observation
            _, episode = self._playing[place].step(order)
            return self._playing[place].observation if episode is None else episode

    def close(self) -> None:
        self._environments.close()


def serve_steps(
    connection: Connection[Any, Any], environments: tuple[EnvironmentSpec, ...], watched: tuple[str, ...]
) -> None:
    """Answer every {place: Begin or action} with {place: observation, Episode or an error in words}."""
    stepper = _Stepper(environments, watched)
    answer_all(connection, stepper.answer)
    stepper.close()


class _Batch:
    """Places that advance together; process p % workers holds the environment of place p."""

    def __init__(self, processes: Processes, act: Act, first_state: Any, places: int) -> None:
        self._processes, self._places = processes, places
        self._act = jax.jit(
            lambda parameters, batch, states, *normaliser: jax.vmap(
                lambda p, o, s: act(p, o, s, *normaliser)
            )(parameters, batch, states)
        )
        self._first_states = self._states = repeated(first_state, places)
        self._parameters: NDArray[np.float32] | None = None
        self._normaliser: NDArray[np.float32] | None = None
        self._on_device: Array | None = None
        self._orders: dict[int, Begin] = {}
        self._observations: dict[int, Observation] = {}

    def __len__(self) -> int:
        return self._places

    def free(self) -> list[int]:
        return [p for p in range(self._places) if p not in self._observations and p not in self._orders]

    def start(self, place: int, task: Task) -> None:
        self._orders[place] = Begin(task.environment, task.seed)
        if self._parameters is None or self._parameters.shape[1] != task.parameters.size:
            self._parameters = np.zeros((self._places, task.parameters.size), np.float32)
        self._parameters[place], self._normaliser = task.parameters, task.normaliser
        self._on_device = None

    def finished(self) -> list[tuple[int, Episode | str]]:
        """Advance every place by one step."""
        orders: dict[int, Any] = {**self._orders, **self._actions()}
        if self._orders:
            self._begin_states()  # after the actions, whose call moves the states of idle places, too
        self._orders = {}
        answers: list[tuple[int, Episode | str]] = []
        for place, answer in self._exchange(orders).items():
            if isinstance(answer, (Episode, str)):
                self._observations.pop(place, None)
                answers.append((place, answer))
            else:
                self._observations[place] = answer
        return answers

    def _actions(self) -> dict[int, NDArray[np.float32]]:
        """The actions of the policies, for every place with an observation."""
        if not self._observations:
            return {}
        if self._on_device is None:
            self._on_device = jnp.asarray(self._parameters)
        # All calls have one shape: an idle place repeats the observation of another place.
        filler = next(iter(self._observations.values()))
        rows = [self._observations.get(place, filler) for place in range(self._places)]
        batch = {name: np.stack([row[name] for row in rows]) for name in filler}
        normaliser = () if self._normaliser is None else (self._normaliser,)
        actions, self._states = self._act(self._on_device, batch, self._states, *normaliser)
        actions = np.asarray(actions)
        return {place: actions[place] for place in self._observations}

    def _begin_states(self) -> None:
        """Give the places whose episode begins the policy's first state."""
        begins = np.isin(np.arange(self._places), list(self._orders))

        def chosen(first: Array, now: Array) -> Array:
            return jnp.where(begins.reshape(-1, *[1] * (now.ndim - 1)), first, now)

        self._states = jax.tree.map(chosen, self._first_states, self._states)

    def _exchange(self, orders: dict[int, Any]) -> dict[int, Any]:
        """The processes' answers to the orders; a process that fails loses all its episodes."""
        count = len(self._processes)
        shares = [{p: o for p, o in orders.items() if p % count == worker} for worker in range(count)]
        pending = {worker for worker, share in enumerate(shares) if share}
        for worker in pending:
            self._processes.start(worker, shares[worker])
        answers: dict[int, Any] = {}
        while pending:
            for worker, answer in self._processes.finished():
                pending.remove(worker)
                answers |= dict.fromkeys(shares[worker], answer) if isinstance(answer, str) else answer
        return answers

    def abandon(self) -> None:
        self._processes.abandon()
        self._orders, self._observations = {}, {}

    def close(self) -> None:
        self._processes.close()


class LockStep(Evaluator):
    """All episodes advance together, with one policy call per step.

    Returns equal those of `LocalPool` up to rounding: JAX rounds differently from onnxruntime, so the two may
    choose differently between actions that agree to seven digits.
    """

    def __init__(
        self,
        environments: Sequence[EnvironmentSpec],
        act: Act,
        first_state: Any,
        workers: int,
        places: int,
        deadline: float = DEADLINE,
        watched: tuple[str, ...] = (),
    ) -> None:
        """Start the worker processes.

        Args:
          environments: the environments that they play.
          act: pure function (parameters [P], observation, state) -> action [A], next state, compiled for
            `places` at once. In evaluations with a normaliser [2K], that is the fourth argument.
          first_state: the state in which every episode begins, a pytree of arrays; `()` without one.
          workers: number of processes that share the environments.
          places: number of environments, and of episodes in progress.
          deadline: seconds for one step of a process's environments.
          watched: vector observations whose moments are part of each Episode.

        Raises ValueError for places below 1, or workers that this machine cannot hold.
        """
        check_workers(workers)
        if places < 1:
            raise ValueError(f"places is {places}: it must be 1 or more")
        processes = Processes(serve_steps, (tuple(environments), watched), workers, deadline)
        super().__init__([spec.label for spec in environments], _Batch(processes, act, first_state, places))
