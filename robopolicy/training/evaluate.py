"""Evaluators play episodes with every policy of a population and return the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.rollout import Episode
from robopolicy.training.worker import Task

TRIES = 3  # of one episode, before its failure ends the run
DEADLINE = 600.0  # s, for one episode


class EpisodeError(RuntimeError):
    """An episode that failed in every try."""


class Evaluations(NamedTuple):
    """The results of a population: `episodes[n][e]` is the episode of candidate n with seed e."""

    episodes: list[list[Episode]]

    @property
    def returns(self) -> NDArray[np.float64]:
        """The return of each episode, [N, E]."""
        return np.array([[episode.total for episode in row] for row in self.episodes])

    def outcome(self, name: str) -> NDArray[np.float64]:
        """An entry of the episodes' last info, [N, E]."""
        return np.array([[float(episode.info[name]) for episode in row] for row in self.episodes])

    @property
    def seconds(self) -> float:
        """Sum of the wall time inside the episodes (s), over all workers."""
        return sum(episode.seconds for row in self.episodes for episode in row)

    def outcome_means(self, prefix: str = "") -> dict[str, float]:
        """Means of the entries of the last info that are numbers in all episodes, by prefixed name."""
        infos = [episode.info for row in self.episodes for episode in row]
        numbers = [n for n in infos[0] if all(isinstance(info.get(n), (bool, int, float)) for info in infos)]
        return {prefix + name: float(self.outcome(name).mean()) for name in numbers}


class Places(Protocol):
    """Places that play one episode at a time each, and may fail.

    `free` returns the idle places; `start` begins an episode in one of them. `finished` waits for an event
    and returns the places with a result, which is an episode or the reason of a failure in words. `abandon`
    frees every place and discards the episodes in progress.
    """

    def __len__(self) -> int: ...
    def free(self) -> list[int]: ...
    def start(self, place: int, task: Task) -> None: ...
    def finished(self) -> list[tuple[int, Episode | str]]: ...
    def abandon(self) -> None: ...
    def close(self) -> None: ...


class Evaluator:
    """Plays every candidate of a population with every seed, in any `Places`.

    The results depend on the parameters and the seeds, but not on the number of places. A place that fails
    costs only the episodes that it was playing.
    """

    def __init__(self, labels: Sequence[str], places: Places) -> None:
        """`labels` name the environments in the order of a curriculum; the last one is the target."""
        self.labels, self._places = tuple(labels), places

    @property
    def workers(self) -> int:
        """The number of places; of a `BatchPool`, that of its processes."""
        return len(self._places)

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
        normaliser: NDArray[np.float32] | None = None,
    ) -> Evaluations:
        """Evaluate `population` [N, P] and call `on_episode` after each episode.

        All candidates normalise observations by `normaliser` [2K], see `Normaliser.vector`. Raises
        EpisodeError for an episode that fails three times.
        """
        population = np.asarray(population, np.float32)
        environment %= len(self.labels)
        tasks = [
            Task(environment, parameters, int(s), normaliser) for parameters in population for s in seeds
        ]
        try:
            episodes = self._play(tasks, len(seeds), on_episode)
        except BaseException:
            # A late result must not count for the next population.
            self._places.abandon()
            raise
        each = len(seeds)
        return Evaluations([episodes[n * each : (n + 1) * each] for n in range(len(population))])

    def _play(self, tasks: list[Task], each: int, on_episode: Callable[[], None] | None) -> list[Episode]:
        """The episodes of `tasks`, `each` of them for every candidate."""
        episodes: dict[int, Episode] = {}
        failures = [0] * len(tasks)
        waiting = list(reversed(range(len(tasks))))
        playing: dict[int, int] = {}
        while len(episodes) < len(tasks):
            for place in self._places.free():
                if waiting:
                    playing[place] = waiting.pop()
                    self._places.start(place, tasks[playing[place]])
            for place, answer in self._places.finished():
                index = playing.pop(place)
                if isinstance(answer, Episode):
                    episodes[index] = answer
                    if on_episode is not None:
                        on_episode()
                    continue
                failures[index] += 1
                if failures[index] == TRIES:
                    task = tasks[index]
                    who = f"candidate {index // each}" if len(tasks) > each else "the policy"
                    raise EpisodeError(
                        f"{who} failed {TRIES} times with seed {task.seed} "
                        f"on {self.labels[task.environment]}: {answer}"
                    )
                waiting.append(index)
        return [episodes[index] for index in range(len(tasks))]

    def close(self) -> None:
        """End all workers."""
        self._places.close()
