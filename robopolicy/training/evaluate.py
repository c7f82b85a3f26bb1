"""Evaluators: they play episodes of a population of policies, and return how these went."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.rollout import Episode
from robopolicy.training.worker import EnvironmentSpec, Task

TRIES = 3  # of one episode, before its failure is the run's
DEADLINE = 600.0  # s, for one episode


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

    @property
    def seconds(self) -> float:
        """Wall time inside the episodes, added up over the workers."""
        return sum(episode.seconds for row in self.episodes for episode in row)

    def outcome_means(self, prefix: str = "") -> dict[str, float]:
        """Means of those entries of the last info that are numbers in all episodes, by prefixed name."""
        infos = [episode.info for row in self.episodes for episode in row]
        numbers = [n for n in infos[0] if all(isinstance(info.get(n), (bool, int, float)) for info in infos)]
        return {prefix + name: float(self.outcome(name).mean()) for name in numbers}


class Evaluator(Protocol):
    """Plays every candidate of a population with every seed, on one of its environments.

    The result depends on the parameters and the seeds alone, not on how the work was spread.
    """

    @property
    def labels(self) -> tuple[str, ...]:
        """The environments, in the order of a curriculum: the last one is what is to be learnt."""

    @property
    def workers(self) -> int:
        """How many episodes are played at the same time."""

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
        normaliser: NDArray[np.float32] | None = None,
    ) -> Evaluations:
        """Evaluate `population` [N, P]; `on_episode` is called as each episode comes in.

        `normaliser` [2K] is what all candidates normalise observations by, as `Normaliser.vector` gives it.
        """

    def close(self) -> None:
        """Release the workers."""


class Places(Protocol):
    """Where episodes are played: each place plays one at a time, and may fail."""

    def free(self) -> list[int]:
        """The places that play nothing."""

    def start(self, place: int, task: Task) -> None:
        """Begin an episode."""

    def finished(self) -> list[tuple[int, Episode | str]]:
        """Wait until something happens; what came of the places where it did: an episode, or what failed."""

    def abandon(self) -> None:
        """Free every place; what is still played there is of no interest."""


class Dispatcher:
    """An Evaluator on any `Places`. A place that fails costs the episodes that it played, and no other."""

    def __init__(self, environments: Sequence[EnvironmentSpec], places: Places) -> None:
        self._environments, self._places = tuple(environments), places

    @property
    def labels(self) -> tuple[str, ...]:
        """See `Evaluator`."""
        return tuple(spec.label for spec in self._environments)

    def evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
        normaliser: NDArray[np.float32] | None = None,
    ) -> Evaluations:
        """See `Evaluator`. Raises EpisodeError for an episode that fails three times."""
        population = np.asarray(population, np.float32)
        with self._abandoned_on_error():
            environment %= len(self._environments)
            return self._evaluate(population, seeds, environment, on_episode, normaliser)

    @contextmanager
    def _abandoned_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            # Answers that are still to come must not be taken for those of the next population.
            self._places.abandon()
            raise

    def _evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int,
        on_episode: Callable[[], None] | None,
        normaliser: NDArray[np.float32] | None,
    ) -> Evaluations:
        pairs = list(np.ndindex((len(population), len(seeds))))
        episodes: dict[int, Episode] = {}
        failures = [0] * len(pairs)
        waiting = deque(range(len(pairs)))
        playing: dict[int, int] = {}
        while len(episodes) < len(pairs):
            for place in self._places.free():
                if waiting:
                    playing[place] = index = waiting.popleft()
                    n, e = pairs[index]
                    task = Task(environment, population[n], int(seeds[e]), normaliser)
                    self._places.start(place, task)
            for place, answer in self._places.finished():
                index = playing.pop(place)
                if isinstance(answer, Episode):
                    episodes[index] = answer
                    if on_episode is not None:
                        on_episode()
                    continue
                failures[index] += 1
                if failures[index] == TRIES:
                    n, e = pairs[index]
                    raise EpisodeError(
                        f"candidate {n} failed {TRIES} times with seed {seeds[e]} "
                        f"on {self._environments[environment].label}: {answer}"
                    )
                waiting.appendleft(index)
        row = len(seeds)
        return Evaluations([[episodes[n * row + e] for e in range(row)] for n in range(len(population))])
