"""Evolution strategies: ask for a population, play it, tell the strategy its returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.settings import check_count, check_number, is_finite
from robopolicy.training.capacity import check_fits, check_settings
from robopolicy.training.checkpoint import (
    BEST,
    BEST_FEATURES,
    FEATURES,
    MEAN,
    CheckpointError,
    RunFolder,
    check_features,
    under,
)
from robopolicy.training.device import DeviceEvaluator
from robopolicy.training.evaluate import Evaluations, Evaluator
from robopolicy.training.loop import PROGRESS, Loop, Schedule, running
from robopolicy.training.metrics import HELD_OUT_RETURN, UNPLANNED, Record, Sink
from robopolicy.training.normaliser import Normaliser
from robopolicy.training.progress import Conditions, Limits, Progress
from robopolicy.training.rollout import HELD_OUT_FROM, MOST_HELD_OUT
from robopolicy.training.strategies import exploration, sanitised, strategy
from robopolicy.training.strategy import Settings, Strategy

COUNTER = "generation"  # the number of a record
STRATEGY, SEEN = "strategy/", "seen/"
CANDIDATE = 16  # bytes per parameter: float32, in four copies on its way to the strategy and back
EPISODE = 500  # bytes of an episode's results, at least
HIGHEST_AVERAGE = 0.999
LOWEST = {
    **dict.fromkeys(("generations", "evaluate_every", "checkpoint_every"), 1),
    **dict.fromkeys(("stage_limit", "stop_after", "episode_budget", "seconds_budget", "keep_every"), 0),
}


@dataclass(frozen=True)
class ESConfig:
    """Settings of a run.

    Attributes:
      generations: number of generations.
      population: candidates per generation.
      episodes: episodes per candidate: one number for all presets, or one for each. All candidates of a
        generation play the same seeds; every generation has new seeds. Default: those of the task's
        curriculum, or 1.
      advance_at: mean returns of three generations at which the run moves to the next preset, one for each
        preset but the last. Default: those of the task's curriculum.
      stage_limit: generations after which it moves to the next one in any case; 0 for never.
      evaluate_every: generations between two evaluations of the result on held-out seeds of the last
        environment; the untrained policy and the last generation are always evaluated. Every checkpoint holds
        the best result of the generations at multiples of `evaluate_every`.
      held_out: episodes of such an evaluation, the same ones in every run; at most 1,000.
      stop_at: held-out return that ends the run; None for never.
      stop_after: evaluations without a new best, on the last environment, that end the run; 0 for never.
      episode_budget: training episodes after which the run ends; 0 for never.
      seconds_budget: wall time after which it ends, over all its resumed parts; 0 for never.
      strategy: name of the evolution strategy; docs/evolution-strategies.md lists them.
      sigma: standard deviation of the candidates around the mean.
      learning_rate: step size of the mean, of open_es, pgpe, ars, robotics_ars, evojax_pgpe and evojax_ars;
        the others, such as snes, ignore it.
      decay: factor of sigma and of the learning rate in each generation, for strategies that do not adapt
        them; snes does.
      elite: share of the directions that a random search (ars, robotics_ars) learns from.
      shaping: transformation of returns: raw, ranks, standardized, normalized, or default (the strategy's).
        Strategies that use ranks alone, such as snes, give the same result with all.
      weight_decay: cost of a candidate's mean squared parameter, in units of return.
      average: the result is the mean of all means of the search, each with `average` times the weight of the
        next one; 0 for the last one alone. The search itself does not change. The last mean is as noisy as
        the steps of the search.
      seed: of all random draws; results do not depend on the number of workers.
      checkpoint_every: generations between two checkpoints; a run always saves its last state.
      keep_every: the checkpoints at its multiples stay for good, besides the latest; 0 for none.

    Raises ValueError for a setting of another type or out of range.
    """

    generations: int = 80
    population: int = 24
    episodes: tuple[int, ...] = ()
    advance_at: tuple[float, ...] = ()
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
    average: float = 0.0
    seed: int = 0
    checkpoint_every: int = 1
    keep_every: int = 0

    def __post_init__(self) -> None:
        check_settings(self, LOWEST)
        check_count("held_out", self.held_out, 1, MOST_HELD_OUT)
        check_number("seconds_budget", self.seconds_budget, 0.0)
        check_number("average", self.average, 0.0, HIGHEST_AVERAGE)
        if self.advance_at and len(self.episodes) not in (0, 1, len(self.advance_at) + 1):
            raise ValueError(
                f"episodes is {self.episodes}: it must be one number, or one for each of "
                f"{len(self.advance_at) + 1} environments"
            )
        if min(self.episodes, default=1) < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        if not all(map(is_finite, self.advance_at)):
            raise ValueError(f"advance_at is {self.advance_at}: it must be finite returns")
        if self.stop_at is not None and not is_finite(self.stop_at):
            raise ValueError(f"stop_at is {self.stop_at}: it must be a finite return")
        self.make_strategy()

    def episodes_on(self, stage: int) -> int:
        """Episodes per candidate on environment `stage`."""
        episodes = self.episodes or (1,)
        return episodes[stage if len(episodes) > 1 else 0]

    def make_strategy(self) -> Strategy:
        """The strategy of this config; raises ValueError for settings out of its range."""
        return strategy(self.strategy, Settings(**{name: getattr(self, name) for name in Settings._fields}))


MAY_CHANGE = tuple(field.name for field in fields(Limits))  # settings that a resumed run may change


def most_episodes(config: ESConfig) -> int:
    """The largest number of episodes in a generation or an evaluation."""
    return max(config.held_out, config.population * max(config.episodes, default=1))


def check_population(config: ESConfig, parameters: int) -> None:
    """Raise ValueError if candidates with so many parameters, or their episodes, do not fit in memory."""
    name = f"population is {config.population}"
    check_fits(
        name, config.population * parameters * CANDIDATE, f"a generation of {parameters} parameters each"
    )
    episodes = f"{name}, episodes is {config.episodes}, held_out is {config.held_out}"
    check_fits(episodes, most_episodes(config) * EPISODE, "what their episodes return")


def generation_seeds(config: ESConfig, generation: int, stage: int = 0) -> list[int]:
    """The seeds of all candidates of `generation` on environment `stage`; 0 is before the first one."""
    sequence = np.random.SeedSequence([config.seed, generation])
    return [int(seed) for seed in sequence.generate_state(config.episodes_on(stage), np.uint32)]


def train(
    config: ESConfig,
    *,
    run: RunFolder,
    initial: ArrayLike,
    features: Mapping[str, Any],
    evaluator: Evaluator | DeviceEvaluator,
    normalised: Mapping[str, int] | None = None,
    resume: bool = False,
    on_generation: Callable[[Record], None] | None = None,
    on_episode: Callable[[], None] | None = None,
    on_first: Callable[[Mapping[str, Any]], None] = lambda info: None,
    sinks: Sequence[Sink] = (),
) -> Record | None:
    """Run generations until `config.generations` and save to `run`.

    Returns the last record, None if the run was complete.

    Args:
      config: settings.
      run: a folder that `RunFolder.create` has made.
      initial: flat parameters [P] at the centre of the initial search.
      features: the policy's frozen features, arrays by path; every checkpoint holds them.
      evaluator: plays the episodes. It watches the observations that the policy normalises.
      normalised: sizes of these observations, by name.
      resume: continue after the latest checkpoint, bit for bit as a run without a stop, or from the beginning
        without a checkpoint; see `resume.resume_point`.
      on_generation: called with every record, after the checkpoint if one is due.
      on_episode: called after each training episode.
      on_first: called with the info at the end of each held-out episode before the first generation.
      sinks: further logs.

    Ctrl-C or SIGTERM ends the run after the generation in progress; a second one ends it at once. The record
    also has `ended_by`, the reason of an early end or "", and `stopped`, whether there was such a request.

    Raises ValueError if `advance_at` does not fit the environments, FloatingPointError if the search diverges
    or no return of a generation is finite, EpisodeError if an episode fails in every try, and CheckpointError
    if a checkpoint is damaged, does not fit this config, or is missing although the log goes beyond it, or if
    another process trains the run.
    """
    if len(config.advance_at) != len(evaluator.labels) - 1:
        raise ValueError(
            f"advance_at is {config.advance_at}: {len(evaluator.labels)} environments need "
            f"{len(evaluator.labels) - 1} of it"
        )
    search = _Search(config, initial, features, evaluator, Normaliser.empty(normalised or {}), on_first)
    limits = Limits(**{name: getattr(config, name) for name in MAY_CHANGE})
    schedule = Schedule(COUNTER, config.generations, config.checkpoint_every, config.keep_every, limits)
    restore, record = search.restore, None
    with running(run, schedule, resume=resume, restore=restore, on_record=on_generation, sinks=sinks) as loop:
        if not loop.done:
            record = search.untrained()
            loop.complete(0, record, search.arrays, ended=bool(search.over))
        for generation in range(loop.done + 1, config.generations + 1):
            if search.over:
                break
            record, ended = search.advance(generation, loop, on_episode)
            loop.complete(generation, record, search.arrays, ended=ended)
            if ended:
                break
        stopped = loop.stopped()
    return None if record is None else {**record, "ended_by": search.over, "stopped": stopped}


class _Search:
    """A search with its statistics of observations, its progress, and the best result so far."""

    def __init__(
        self,
        config: ESConfig,
        initial: ArrayLike,
        features: Mapping[str, Any],
        evaluator: Evaluator | DeviceEvaluator,
        normaliser: Normaliser,
        on_first: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._config, self._features, self._evaluator = config, features, evaluator
        self._on_first = on_first
        self._strategy, self._key = config.make_strategy(), jax.random.key(config.seed)
        mean = jnp.asarray(initial, jnp.float32)
        self._state = self._strategy.init(jax.random.fold_in(self._key, 0), mean)
        self._normaliser = normaliser
        self._mean = np.asarray(mean)
        self._best: Arrays = {BEST: self._mean, **normaliser.features(BEST_FEATURES)}
        self._clock = time.monotonic()
        self._progress = Progress()
        self._conditions = Conditions(*(getattr(config, name) for name in Conditions._fields))

    @property
    def over(self) -> str:
        """The reason why the search is over before its last generation, or ""."""
        return self._progress.over(self._conditions)

    def untrained(self) -> Record:
        """The record of the policy before the first generation."""
        if self._normaliser.moments:
            # So that the first candidates have statistics, too.
            seeds = generation_seeds(self._config, 0)
            results = self._evaluator.evaluate(self._mean[None], seeds, 0, None, self._normaliser.vector())
            self._normaliser = self._normaliser.after(results.episodes)
            self._best |= self._normaliser.features(BEST_FEATURES)
        results = self._held_out()
        for episode in results.episodes[0]:
            self._on_first(episode.info)
        record = {"generation": 0, **_held_out_record(results)}
        self._progress = self._progress.evaluated(record[HELD_OUT_RETURN], counts=False)
        return record

    def advance(
        self, generation: int, loop: Loop, on_episode: Callable[[], None] | None
    ) -> tuple[Record, bool]:
        """Play a generation and learn from it. Returns its record, and whether the run ends with it."""
        config, strategy, stage = self._config, self._strategy, self._progress.stage
        centre = np.asarray(strategy.mean(self._state))
        started = time.monotonic()
        seeds = generation_seeds(config, generation, stage)
        population, self._state, results = self._played(generation, seeds, stage, on_episode)
        seconds = time.monotonic() - started
        returns, broken = sanitised(results.returns.mean(axis=1))
        self._mean = self._averaged(np.asarray(strategy.mean(self._state), np.float32), generation)
        _check_finite("the search's mean", self._mean, generation)
        self._normaliser = self._normaliser.after(results.episodes)
        own = {
            "generation": generation,
            "environment": self._evaluator.labels[stage],
            **_record(results, returns, broken, seconds),
        }
        # An outcome of the same name, such as seconds, replaces none of them.
        record = {**own, **results.outcome_means(), **own, **exploration(population, centre, returns)}
        progress = self._progress.played(self._conditions, record["return_mean"], results.returns.size)
        self._progress = progress._replace(seconds=loop.seconds)
        inside = results.seconds
        planned = generation % config.evaluate_every == 0
        ended = loop.ends_with(generation) or bool(self.over)
        if planned or ended:
            held_out = self._held_out()
            record |= _held_out_record(held_out) | ({} if planned else {UNPLANNED: True})
            inside += held_out.seconds
        # An extra evaluation after a stop must not change a run that continues.
        if planned:
            if record[HELD_OUT_RETURN] > self._progress.best_return:
                self._best = {BEST: self._mean, **self._normaliser.features(BEST_FEATURES)}
            final = stage == len(config.advance_at)
            self._progress = self._progress.evaluated(record[HELD_OUT_RETURN], counts=final)
        began, self._clock = self._clock, time.monotonic()
        record["wall_seconds"] = self._clock - began  # with the checkpoint of the generation before
        record["share_in_episodes"] = inside / (self._evaluator.workers * (self._clock - began))
        return record, ended or bool(self.over)

    def _played(
        self, generation: int, seeds: list[int], stage: int, on_episode: Callable[[], None] | None
    ) -> tuple[Any, Any, Evaluations]:
        """The candidates of `generation` [N, P], the strategy's state after it, and the episodes."""
        strategy, normaliser, evaluator = self._strategy, self._normaliser.vector(), self._evaluator
        ask_key, tell_key = (jax.random.fold_in(self._key, 2 * generation + more) for more in (0, 1))
        if isinstance(evaluator, DeviceEvaluator):
            whole = evaluator.generation(
                (ask_key, tell_key), self._state, seeds, stage, on_episode, normaliser
            )
            _check_finite("a candidate", whole[0], generation)
            return whole
        population, state = strategy.ask(ask_key, self._state)
        _check_finite("a candidate", population, generation)
        candidates = np.asarray(population, np.float32)
        results = evaluator.evaluate(candidates, seeds, stage, on_episode, normaliser)
        returns, _ = sanitised(results.returns.mean(axis=1))
        state = strategy.tell(tell_key, population, jnp.asarray(returns, jnp.float32), state)
        return population, state, results

    def _averaged(self, mean: NDArray[np.float32], generation: int) -> NDArray[np.float32]:
        """The result after `generation`, whose search has this `mean` [P]."""
        factor = self._config.average
        if not factor:
            return mean
        weights = (1 - factor**generation) / (1 - factor)  # of all means so far, the last of which has 1
        return self._mean + (mean - self._mean) / np.float32(weights)

    def _held_out(self) -> Evaluations:
        """Evaluate the result on the last environment, with the held-out seeds."""
        seeds = range(HELD_OUT_FROM, HELD_OUT_FROM + self._config.held_out)
        return self._evaluator.evaluate(self._mean[None], seeds, -1, None, self._normaliser.vector())

    def arrays(self) -> Arrays:
        """The arrays of a checkpoint."""
        return {
            MEAN: self._mean,
            **self._best,
            **self._progress.arrays(PROGRESS),
            **self._normaliser.arrays(SEEN),
            **{FEATURES + path: np.asarray(array) for path, array in self._features.items()},
            **self._normaliser.features(FEATURES),
            **{STRATEGY + path: array for path, array in by_path(self._state).items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """Return to a checkpoint; see `loop.running` for its errors."""
        shape = arrays[MEAN].shape
        if shape != self._mean.shape:
            raise CheckpointError(
                f"the checkpoint has {list(shape)} parameters: this policy has [{self._mean.size}]"
            )
        self._mean = np.asarray(arrays[MEAN])
        self._progress = Progress.restored(arrays, PROGRESS)
        self._normaliser = self._normaliser.restored(arrays, SEEN)
        self._best = {path: arrays[path] for path in self._best}
        moving = self._normaliser.features("")
        check_features(arrays, {path: a for path, a in self._features.items() if path not in moving})
        self._state = jax.tree.map(jnp.asarray, from_path(self._state, under(STRATEGY, arrays)))


def _check_finite(what: str, array: ArrayLike, generation: int) -> None:
    if not np.isfinite(np.asarray(array)).all():
        raise FloatingPointError(
            f"{what} of generation {generation} is not finite: the search has diverged, so lower sigma or "
            "learning_rate; the checkpoint before it is good"
        )


def _record(results: Evaluations, returns: np.ndarray, broken: int, seconds: float) -> Record:
    episodes = results.returns.size
    return {
        "return_mean": float(returns.mean()),
        "return_best": float(returns.max()),
        "return_std": float(returns.std()),
        "not_finite": broken,
        "episodes": episodes,
        "steps": sum(episode.steps for row in results.episodes for episode in row),
        "seconds": seconds,
        "episodes_per_second": episodes / seconds,
    }


def _held_out_record(results: Evaluations) -> Record:
    own = {HELD_OUT_RETURN: float(results.returns.mean())}
    return {**own, **results.outcome_means("held_out/"), **own}  # no outcome replaces the return
