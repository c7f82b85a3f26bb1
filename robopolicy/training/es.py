"""Evolution strategies: ask for a population, play it, tell the strategy its returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.settings import is_finite
from robopolicy.training.capacity import check_fits
from robopolicy.training.checkpoint import (
    BEST,
    BEST_FEATURES,
    FEATURES,
    MEAN,
    CheckpointError,
    RunFolder,
)
from robopolicy.training.evaluate import Evaluations, Evaluator
from robopolicy.training.exploration import exploration
from robopolicy.training.loop import PROGRESS, Loop, Schedule, running
from robopolicy.training.metrics import HELD_OUT_RETURN, Record, Sink
from robopolicy.training.normaliser import Normaliser
from robopolicy.training.progress import Curriculum, Ends, Progress
from robopolicy.training.shaping import sanitised
from robopolicy.training.strategies import Settings, Strategy, strategy

COUNTER = "generation"  # what a record of the log counts
STRATEGY, SEEN = "strategy/", "seen/"
CANDIDATE = 16  # bytes a parameter: float32, in four copies on its way to the strategy and back
EPISODE = 500  # bytes that an episode returns, at least
HELD_OUT_FROM = 8000  # first of the held-out seeds; those of generations are spread over 32 bits


@dataclass(frozen=True)
class ESConfig:
    """Settings of a run.

    Attributes:
      generations: how many to run in all.
      population: candidates a generation.
      episodes: episodes a candidate: one number for all variants of the task, or one for each. All
        candidates of a generation play the same seeds; each generation has new ones. None: those of the
        task's curriculum, or 1.
      advance_at: mean returns of three generations at which the run moves to the next variant, one for each
        variant but the last. None: those of the task's curriculum.
      stage_limit: generations after which it goes on to the next one in any case; 0 for never.
      evaluate_every: generations between two evaluations of the search's mean on held-out seeds of the last
        environment; the untrained policy and the last generation are always evaluated. The mean that did
        best at a multiple of `evaluate_every` is kept in every checkpoint.
      held_out: episodes of such an evaluation, the same ones in every run.
      stop_at: held-out return that ends the run; None for never.
      stop_after: evaluations without a new best, on the last environment, that end the run; 0 for never.
      episode_budget: training episodes after which the run ends; 0 for never.
      seconds_budget: wall time after which it ends, over all its resumed parts; 0 for never.
      strategy: name of the evolution strategy; docs/evolution-strategies.md lists them.
      sigma: standard deviation of the candidates around the mean.
      learning_rate: step size of the mean.
      decay: factor of sigma and of the learning rate in each generation.
      elite: share of the directions that a random search (ars, robotics_ars) learns from.
      shaping: what returns become: raw, ranks, standardized or normalized; default: the strategy's own.
      weight_decay: cost of a candidate's mean squared parameter, in units of return.
      seed: fixes everything, whatever the number of workers.
      checkpoint_every: generations between two checkpoints; the last one is always saved.
      keep_every: the checkpoints at its multiples are kept for good, besides the latest; 0 for none.
    """

    generations: int = 80
    population: int = 24
    episodes: tuple[int, ...] | None = None
    advance_at: tuple[float, ...] | None = None
    stage_limit: int = 30
    evaluate_every: int = 5
    held_out: int = 20
    stop_at: float | None = None
    stop_after: int = 0
    episode_budget: int = 0
    seconds_budget: float = 0.0
    strategy: str = "snes"
    sigma: float = 0.3
    learning_rate: float = 0.06
    decay: float = 1.0
    elite: float = 0.5
    shaping: str = "default"
    weight_decay: float = 0.0
    seed: int = 0
    checkpoint_every: int = 1
    keep_every: int = 0

    def __post_init__(self) -> None:
        if self.advance_at is not None and self.episodes is not None:
            stages = len(self.advance_at) + 1
            if len(self.episodes) not in (1, stages):
                raise ValueError(
                    f"episodes is {self.episodes}: it must be one number, or one for each of {stages} presets"
                )
        if self.episodes is not None and min(self.episodes, default=0) < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        for name in ("generations", "evaluate_every", "held_out", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")
        for name in ("stage_limit", "stop_after", "episode_budget", "seconds_budget", "keep_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if not all(map(is_finite, self.advance_at or ())):
            raise ValueError(f"advance_at is {self.advance_at}: it must be finite returns")
        if self.stop_at is not None and not is_finite(self.stop_at):
            raise ValueError(f"stop_at is {self.stop_at}: it must be a finite return")
        self.make_strategy()

    def episodes_on(self, stage: int) -> int:
        """Episodes a candidate on environment `stage`."""
        episodes = self.episodes or (1,)
        return episodes[stage if len(episodes) > 1 else 0]

    @property
    def curriculum(self) -> Curriculum:
        """When to go on to the next environment."""
        return Curriculum(self.advance_at or (), self.stage_limit)

    @property
    def ends(self) -> Ends:
        """What ends the run before its last generation."""
        return Ends(**{name: getattr(self, name) for name in Ends._fields})

    def make_strategy(self) -> Strategy:
        """The strategy of this config; raises ValueError for settings that it cannot take."""
        return strategy(self.strategy, Settings(**{name: getattr(self, name) for name in Settings._fields}))


# What may differ in a run that is resumed: when it ends, and nothing of what it does until then.
MAY_CHANGE = ("generations", *Ends._fields)


def most_episodes(config: ESConfig) -> int:
    """The most episodes that are played at a time, in a generation or an evaluation."""
    return max(config.held_out, config.population * max(config.episodes or (1,)))


def check_population(config: ESConfig, parameters: int) -> None:
    """Raise ValueError where candidates of so many parameters, or their episodes, do not fit in memory."""
    name = f"population is {config.population}"
    check_fits(
        name, config.population * parameters * CANDIDATE, f"a generation of {parameters} parameters each"
    )
    episodes = f"{name}, episodes is {config.episodes}, held_out is {config.held_out}"
    check_fits(episodes, most_episodes(config) * EPISODE, "what their episodes return")


def generation_seeds(config: ESConfig, generation: int, stage: int = 0) -> list[int]:
    """The seeds that every candidate of `generation` plays on environment `stage`; 0 is before the first."""
    sequence = np.random.SeedSequence([config.seed, generation])
    return [int(seed) for seed in sequence.generate_state(config.episodes_on(stage), np.uint32)]


def train(
    config: ESConfig,
    *,
    run: RunFolder,
    initial: ArrayLike,
    features: Mapping[str, Any],
    evaluator: Evaluator,
    normalised: Mapping[str, int] | None = None,
    resume: bool = False,
    on_generation: Callable[[Record], None] | None = None,
    on_episode: Callable[[], None] | None = None,
    sinks: Sequence[Sink] = (),
) -> Record | None:
    """Run generations until `config.generations`, saving to `run` as it goes; returns the last record.

    Args:
      config: settings.
      run: a folder that `RunFolder.create` has made.
      initial: flat parameters [P] that the search starts around.
      features: the policy's frozen features, arrays by path; kept in every checkpoint.
      evaluator: plays the episodes; where observations are normalised, it watches those, and is given their
        statistics with every population.
      normalised: sizes of the observations that the policy normalises, by name.
      resume: go on after the latest checkpoint, to the same bits as if there had been no stop; from the
        beginning where the run was stopped before its first one. See `resume.resume_point`.
      on_generation: called with every record, once it is saved.
      on_episode: called as each training episode comes in.
      sinks: where records go besides the run folder.

    Ctrl-C or SIGTERM ends the run after the generation in progress; a second one ends it at once. Raises
    CheckpointError where a checkpoint to resume from is damaged, is missing although the log goes beyond it,
    or has other shapes than this config.
    """
    if len(config.advance_at or ()) != len(evaluator.labels) - 1:
        raise ValueError(
            f"advance_at is {config.advance_at}: {len(evaluator.labels)} environments need "
            f"{len(evaluator.labels) - 1} of it"
        )
    search = _Search(config, initial, features, evaluator, Normaliser.empty(dict(normalised or {})))
    schedule = Schedule(COUNTER, config.generations, config.checkpoint_every, config.keep_every)
    restore, record = search.restore, None
    with running(run, schedule, resume=resume, restore=restore, on_record=on_generation, sinks=sinks) as loop:
        if not loop.done:
            record = search.untrained()
            loop.complete(0, record, search.arrays)
        for generation in range(loop.done + 1, config.generations + 1):
            if search.progress.over(config.ends):
                break
            record, ended = search.advance(generation, loop, on_episode)
            loop.complete(generation, record, search.arrays, ended=ended)
            if ended:
                break
    return None if record is None else {**record, "ended_by": search.progress.over(config.ends)}


class _Search:
    """A search and what goes with it: statistics of observations, progress, the best mean so far."""

    def __init__(
        self,
        config: ESConfig,
        initial: ArrayLike,
        features: Mapping[str, Any],
        evaluator: Evaluator,
        normaliser: Normaliser,
    ) -> None:
        self._config, self._features, self._evaluator = config, features, evaluator
        self._strategy, self._key = config.make_strategy(), jax.random.key(config.seed)
        mean = jnp.asarray(initial, jnp.float32)
        self._state = self._strategy.init(jax.random.fold_in(self._key, 0), mean)
        self._normaliser = normaliser
        self._mean = np.asarray(mean)
        self._best: Arrays = {BEST: self._mean, **normaliser.features(BEST_FEATURES)}
        self._clock = time.monotonic()
        self.progress = Progress()

    def untrained(self) -> Record:
        """The record of the policy before the first generation."""
        if self._normaliser.moments:
            # So that the first candidates, too, are given something to go by.
            played = self._evaluate(self._mean[None], generation_seeds(self._config, 0), 0)
            self._normaliser = self._normaliser.after(played.episodes)
            self._best |= self._normaliser.features(BEST_FEATURES)
        record = {"generation": 0, **_held_out_record(self._held_out())}
        self.progress = self.progress.evaluated(record[HELD_OUT_RETURN], counts=False)
        return record

    def advance(
        self, generation: int, loop: Loop, on_episode: Callable[[], None] | None
    ) -> tuple[Record, bool]:
        """Play a generation and learn from it; its record, and whether the run ends with it."""
        config, strategy, stage = self._config, self._strategy, self.progress.stage
        before = np.asarray(strategy.mean(self._state))
        population, state = strategy.ask(jax.random.fold_in(self._key, 2 * generation), self._state)
        _check_finite("a candidate", population, generation)
        started = time.monotonic()
        seeds = generation_seeds(config, generation, stage)
        played = self._evaluate(np.asarray(population, np.float32), seeds, stage, on_episode)
        seconds = time.monotonic() - started
        returns, broken = sanitised(played.returns.mean(axis=1))
        key = jax.random.fold_in(self._key, 2 * generation + 1)
        self._state = strategy.tell(key, population, jnp.asarray(returns, jnp.float32), state)
        self._mean = np.asarray(strategy.mean(self._state), np.float32)
        _check_finite("the search's mean", self._mean, generation)
        self._normaliser = self._normaliser.after(played.episodes)
        record = {
            "generation": generation,
            "environment": self._evaluator.labels[stage],
            **_record(played, returns, broken, seconds),
            **exploration(population, before, returns),
        }
        progress = self.progress.played(config.curriculum, record["return_mean"], played.returns.size)
        self.progress = progress._replace(seconds=loop.seconds)
        inside = played.seconds
        planned = generation % config.evaluate_every == 0
        ended = loop.ends_with(generation) or bool(self.progress.over(config.ends))
        # What a stop evaluates besides must leave no trace in a run that goes on.
        if planned or ended:
            held_out = self._held_out()
            record |= _held_out_record(held_out)
            inside += held_out.seconds
        if planned:
            if record[HELD_OUT_RETURN] > self.progress.best_return:
                self._best = {BEST: self._mean, **self._normaliser.features(BEST_FEATURES)}
            final = stage == len(config.advance_at or ())
            self.progress = self.progress.evaluated(record[HELD_OUT_RETURN], counts=final)
        began, self._clock = self._clock, time.monotonic()
        record["wall_seconds"] = self._clock - began  # the checkpoint of the generation before included
        record["share_in_episodes"] = inside / (self._evaluator.workers * (self._clock - began))
        return record, ended or bool(self.progress.over(config.ends))

    def _evaluate(
        self,
        population: NDArray[np.float32],
        seeds: Sequence[int],
        environment: int = -1,
        on_episode: Callable[[], None] | None = None,
    ) -> Evaluations:
        """Candidates [N, P], all with the same statistics of observations."""
        normaliser = self._normaliser.vector()
        return self._evaluator.evaluate(population, seeds, environment, on_episode, normaliser)

    def _held_out(self) -> Evaluations:
        """The search's mean on seeds that no generation plays, on the last environment."""
        return self._evaluate(self._mean[None], range(HELD_OUT_FROM, HELD_OUT_FROM + self._config.held_out))

    def arrays(self) -> Arrays:
        """All of it, as a checkpoint holds it."""
        return {
            MEAN: self._mean,
            **self._best,
            **self.progress.arrays(PROGRESS),
            **self._normaliser.arrays(SEEN),
            **{FEATURES + path: np.asarray(array) for path, array in self._features.items()},
            **self._normaliser.features(FEATURES),
            **{STRATEGY + path: array for path, array in by_path(self._state).items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """Go back to a checkpoint. Raises CheckpointError where it belongs to another config."""
        size = self._mean.size
        if MEAN not in arrays or arrays[MEAN].shape != (size,):
            found = list(arrays[MEAN].shape) if MEAN in arrays else "no"
            raise CheckpointError(f"the checkpoint has {found} parameters: this policy has [{size}]")
        try:
            self.progress = Progress.restored(arrays, PROGRESS)
            self._normaliser = self._normaliser.restored(arrays, SEEN)
            self._best = {path: arrays[path] for path in self._best}
        except KeyError as error:
            raise CheckpointError(f"the checkpoint holds no {error}: another version made it") from error
        moving = self._normaliser.features("")
        for path, array in self._features.items():
            stored = arrays.get(FEATURES + path)
            if path not in moving and (stored is None or not np.array_equal(stored, array)):
                raise CheckpointError(f"features {path} of the checkpoint are not those of this config")
        state = {p.removeprefix(STRATEGY): a for p, a in arrays.items() if p.startswith(STRATEGY)}
        try:
            self._state = jax.tree.map(jnp.asarray, from_path(self._state, state))
        except ValueError as error:
            raise CheckpointError(f"the strategy's state is another one: {error}") from error


def _check_finite(what: str, array: ArrayLike, generation: int) -> None:
    if not np.isfinite(np.asarray(array)).all():
        raise FloatingPointError(
            f"{what} of generation {generation} is not finite: the search has diverged, so lower sigma or "
            "learning_rate; the checkpoint before it is good"
        )


def _record(played: Evaluations, returns: np.ndarray, broken: int, seconds: float) -> Record:
    episodes = played.returns.size
    return {
        "return_mean": float(returns.mean()),
        "return_best": float(returns.max()),
        "return_std": float(returns.std()),
        "not_finite": broken,
        "episodes": episodes,
        "steps": sum(episode.steps for row in played.episodes for episode in row),
        "seconds": seconds,
        "episodes_per_second": episodes / seconds,
        **played.outcome_means(),
    }


def _held_out_record(played: Evaluations) -> Record:
    return {HELD_OUT_RETURN: float(played.returns.mean()), **played.outcome_means("held_out/")}
