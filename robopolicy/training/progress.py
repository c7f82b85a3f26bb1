"""The progress of a search through its curriculum, and the conditions that end it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PATIENCE = 3  # generations whose mean return decides on an advance


@dataclass(frozen=True)
class Limits:
    """What ends a run; see `es.ESConfig`. A resume may change it: no generation before depends on it."""

    generations: int
    stop_at: float | None
    stop_after: int
    episode_budget: int
    seconds_budget: float


class Conditions(NamedTuple):
    """When a run ends, when it moves to its next environment, and when it is evaluated; see `es.ESConfig`."""

    stop_at: float | None
    stop_after: int
    episode_budget: int
    seconds_budget: float
    advance_at: tuple[float, ...]
    stage_limit: int
    evaluate_every: int


class Progress(NamedTuple):
    """The progress of a run after a generation.

    Attributes:
      stage: index of the environment of the next generation.
      since: generations on it so far.
      recent: mean returns of the last of them, `PATIENCE` at most.
      best_return: of the result on held-out seeds.
      stale: evaluations since it rose, on the last environment.
      episodes: number of training episodes.
      seconds: wall time, over all parts of the run.
    """

    stage: int = 0
    since: int = 0
    recent: tuple[float, ...] = ()
    best_return: float = -np.inf
    stale: int = 0
    episodes: int = 0
    seconds: float = 0.0

    def played(self, conditions: Conditions, mean_return: float, episodes: int) -> Progress:
        """After a generation with this mean return."""
        recent = (*self.recent, mean_return)[-PATIENCE:]
        after = self._replace(since=self.since + 1, recent=recent, episodes=self.episodes + episodes)
        if self.stage == len(conditions.advance_at):
            return after
        reached = len(recent) == PATIENCE and np.mean(recent) >= conditions.advance_at[self.stage]
        if reached or after.since == conditions.stage_limit:
            return after._replace(stage=self.stage + 1, since=0, recent=())
        return after

    def evaluated(self, held_out_return: float, *, counts: bool) -> Progress:
        """After an evaluation of the result; `counts` is whether it counts as stale without a new best."""
        better = held_out_return > self.best_return
        stale = 0 if better else self.stale + counts
        return self._replace(stale=stale, best_return=held_out_return if better else self.best_return)

    def over(self, conditions: Conditions) -> str:
        """The reason why the run is over, in a few words; "" if it is not."""
        if conditions.stop_at is not None and self.best_return >= conditions.stop_at:
            return f"a held-out return of {self.best_return:.2f} reached stop_at"
        if conditions.stop_after and self.stale >= conditions.stop_after:
            return f"{self.stale} evaluations in a row brought no new best"
        if conditions.episode_budget and self.episodes >= conditions.episode_budget:
            return f"the budget of {conditions.episode_budget} episodes is used up"
        if conditions.seconds_budget and self.seconds >= conditions.seconds_budget:
            return f"the budget of {conditions.seconds_budget:g} s is used up"
        return ""

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The arrays of a checkpoint."""
        padded = [*self.recent, *[np.nan] * (PATIENCE - len(self.recent))]
        return {prefix + n: np.asarray(padded if n == "recent" else v) for n, v in self._asdict().items()}

    @staticmethod
    def restored(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Progress:
        """The progress in the `arrays` of a checkpoint. Raises KeyError if it is missing."""
        values = {name: arrays[prefix + name].tolist() for name in Progress._fields}
        values["recent"] = tuple(r for r in values["recent"] if not np.isnan(r))
        return Progress(**values)
