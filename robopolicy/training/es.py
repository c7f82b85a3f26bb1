"""Evolution strategies: ask for a population, play it, tell its returns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from robopolicy.policies.catalogue import Arrays, by_path, from_path
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
from robopolicy.training.interrupt import asked_to_stop
from robopolicy.training.metrics import HELD_OUT_RETURN, MetricsLog, Record, Sink
from robopolicy.training.normaliser import Normaliser
from robopolicy.training.progress import Curriculum, Ends, Progress
from robopolicy.training.shaping import sanitised
from robopolicy.training.strategies import Settings, Strategy, strategy

STRATEGY, SEEN, PROGRESS = "strategy/", "seen/", "progress/"
HELD_OUT_FROM = 8000  # first of the held-out seeds; those of generations are spread over 32 bits


@dataclass(frozen=True)
class ESConfig:
    """Settings of a run.

    Attributes:
      generations: how many to run in all.
      population: candidates a generation.
      episodes: episodes a candidate, one number for all environments or one for each. All candidates of a
        generation play the same seeds, so that they differ by what they do and not by the terrain; every
        generation has new ones.
      advance_at: the curriculum. Once the mean return of three generations on environment i reaches
        advance_at[i], the run goes on to environment i + 1.
      stage_limit: generations after which it goes on to the next one in any case; 0 for never.
      evaluate_every: generations between two evaluations of the search's mean on held-out seeds of the last
        environment; the untrained policy and the last generation are always evaluated. The mean that did
        best at a multiple of `evaluate_every` is kept in every checkpoint.
      held_out: episodes of such an evaluation, the same ones in every run.
      stop_at: held-out return that ends the run; None for never.
      stop_after: evaluations without a new best, on the last environment, that end the run; 0 for never.
      episode_budget: training episodes after which the run ends; 0 for never.
      seconds_budget: wall time after which it ends, over all its resumed parts; 0 for never.
      strategy: name in `strategies.STRATEGIES`.
      sigma, learning_rate, decay, elite, shaping, weight_decay: see `strategy.Settings`.
      seed: fixes everything, whatever the number of workers.
      checkpoint_every: generations between two checkpoints; the last one is always saved.
      keep_every: the checkpoints at its multiples are kept for good, besides the latest; 0 for none.
    """

    generations: int = 100
    population: int = 24
    episodes: tuple[int, ...] = (1,)
    advance_at: tuple[float, ...] = ()
    stage_limit: int = 0
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
        if len(self.episodes) not in (1, len(self.advance_at) + 1):
            raise ValueError(
                f"episodes is {self.episodes}: it must be one number, or one for each of "
                f"{len(self.advance_at) + 1} environments"
            )
        if min(self.episodes) < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        for name in ("generations", "evaluate_every", "held_out", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")
        for name in ("stage_limit", "stop_after", "episode_budget", "seconds_budget", "keep_every"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if not np.isfinite(self.advance_at).all():
            raise ValueError(f"advance_at is {self.advance_at}: it must be finite returns")
        if self.stop_at is not None and not np.isfinite(self.stop_at):
            raise ValueError(f"stop_at is {self.stop_at}: it must be a finite return")
        self.make_strategy()

    def episodes_on(self, stage: int) -> int:
        """Episodes a candidate on environment `stage`."""
        return self.episodes[stage if len(self.episodes) > 1 else 0]

    @property
    def curriculum(self) -> Curriculum:
        """When to go on to the next environment."""
        return Curriculum(self.advance_at, self.stage_limit)

    @property
    def ends(self) -> Ends:
        """What ends the run before its last generation."""
        return Ends(**{name: getattr(self, name) for name in Ends._fields})

    def make_strategy(self) -> Strategy:
        """The strategy of this config; raises ValueError for settings that it cannot take."""
        return strategy(self.strategy, Settings(**{name: getattr(self, name) for name in Settings._fields}))


# What may differ in a run that is resumed: when it ends, and nothing of what it does until then.
MAY_CHANGE = ("generations", *Ends._fields)


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
        statistics behind the parameters of every candidate, as `policies.base.split` reads them.
      normalised: sizes of the observations that the policy normalises, by name.
      resume: go on after the latest checkpoint, to the same bits as if there had been no stop; from the
        beginning where the run was stopped before its first one.
      on_generation, on_episode: told of progress.
      sinks: where records go besides the run folder.

    Ctrl-C or SIGTERM ends the run after the generation in progress; a second one ends it at once. Raises
    CheckpointError where a checkpoint to resume from has other shapes than this config.
    """
    if len(config.advance_at) != len(evaluator.labels) - 1:
        raise ValueError(
            f"advance_at is {config.advance_at}: {len(evaluator.labels)} environments need "
            f"{len(evaluator.labels) - 1} of it"
        )
    began = clock = time.monotonic()
    search = config.make_strategy()
    key = jax.random.key(config.seed)
    mean = jnp.asarray(initial, jnp.float32)
    state = search.init(jax.random.fold_in(key, 0), mean)
    normaliser = Normaliser.empty(dict(normalised or {}))
    progress, done = Progress(), 0
    best: Arrays = {BEST: np.asarray(mean), **normaliser.features(BEST_FEATURES)}
    record: Record | None = None
    with ExitStack() as stack:
        stack.enter_context(run.held())
        stack.enter_context(run.failure_kept())
        if resume and run.generations():
            done, arrays = run.load()
            state, normaliser, progress = _restored(arrays, state, normaliser, features, mean.size)
            best = {path: arrays[path] for path in best}
        earlier = progress.seconds
        log = stack.enter_context(closing(MetricsLog(run.path, after=done if done else -1, sinks=sinks)))
        stopped = stack.enter_context(asked_to_stop())
        if not done:
            if normaliser.moments:
                # So that the first candidates, too, are given something to go by.
                played = evaluator.evaluate(
                    _with(best[BEST][None], normaliser), generation_seeds(config, 0), 0
                )
                normaliser = normaliser.after(played.episodes)
                best |= normaliser.features(BEST_FEATURES)
            record, _ = _held_out(config, evaluator, best[BEST], normaliser)
            record = {"generation": 0, **record}
            progress = progress.evaluated(record[HELD_OUT_RETURN], counts=False)
            log.add(record)
            if on_generation is not None:
                on_generation(record)
        for generation in range(done + 1, config.generations + 1):
            if progress.over(config.ends):
                break
            stage = progress.stage
            before = np.asarray(search.mean(state))
            population, state = search.ask(jax.random.fold_in(key, 2 * generation), state)
            _check_finite("a candidate", population, generation)
            candidates = _with(np.asarray(population, np.float32), normaliser)
            started = time.monotonic()
            seeds = generation_seeds(config, generation, stage)
            played = evaluator.evaluate(candidates, seeds, stage, on_episode)
            seconds = time.monotonic() - started
            returns, broken = sanitised(played.returns.mean(axis=1))
            told = jax.random.fold_in(key, 2 * generation + 1)
            state = search.tell(told, population, jnp.asarray(returns, jnp.float32), state)
            centre = np.asarray(search.mean(state), np.float32)
            _check_finite("the search's mean", centre, generation)
            normaliser = normaliser.after(played.episodes)
            record = {
                "generation": generation,
                "environment": evaluator.labels[stage],
                **_record(played, returns, broken, seconds),
                **exploration(population, before, returns),
            }
            progress = progress.played(config.curriculum, record["return_mean"], played.returns.size)
            progress = progress._replace(seconds=earlier + time.monotonic() - began)
            inside = _seconds(played)
            planned = generation % config.evaluate_every == 0
            ended = stopped() or generation == config.generations or bool(progress.over(config.ends))
            # What a stop evaluates besides must leave no trace in a run that goes on.
            if planned or ended:
                told_of, held_out = _held_out(config, evaluator, centre, normaliser)
                record |= told_of
                inside += _seconds(held_out)
            if planned:
                if record[HELD_OUT_RETURN] > progress.best_return:
                    best = {BEST: centre, **normaliser.features(BEST_FEATURES)}
                final = stage == len(config.advance_at)
                progress = progress.evaluated(record[HELD_OUT_RETURN], counts=final)
            now = time.monotonic()
            record["wall_seconds"] = now - clock  # the checkpoint of the generation before included
            record["share_in_episodes"] = inside / (evaluator.workers * (now - clock))
            clock = now
            ended = ended or bool(progress.over(config.ends))
            # Logged before it is saved: a resumed run drops what was logged beyond its checkpoint.
            log.add(record)
            if ended or generation % config.checkpoint_every == 0:
                run.save(
                    generation,
                    {
                        MEAN: centre,
                        **best,
                        **progress._replace(seconds=earlier + now - began).arrays(PROGRESS),
                        **normaliser.arrays(SEEN),
                        **{FEATURES + path: np.asarray(array) for path, array in features.items()},
                        **normaliser.features(FEATURES),
                        **{STRATEGY + path: array for path, array in by_path(state).items()},
                    },
                    keep_every=config.keep_every,
                )
            if on_generation is not None:
                on_generation(record)
            if ended:
                break
    return None if record is None else {**record, "ended_by": progress.over(config.ends)}


def _check_finite(what: str, array: ArrayLike, generation: int) -> None:
    if not np.isfinite(np.asarray(array)).all():
        raise FloatingPointError(
            f"{what} of generation {generation} is not finite: the search has diverged, so lower sigma or "
            "learning_rate; the checkpoint before it is good"
        )


def _with(population: NDArray[np.float32], normaliser: Normaliser) -> NDArray[np.float32]:
    """Candidates [N, P] as evaluators are given them: each with what its observations are normalised by."""
    vector = normaliser.vector()
    return np.concatenate([population, np.tile(vector, (len(population), 1))], axis=1)


def _restored(
    arrays: Arrays, like: Any, normaliser: Normaliser, features: Mapping[str, Any], size: int
) -> tuple[Any, Normaliser, Progress]:
    """Strategy's state, statistics and progress from a checkpoint that must belong to this config."""
    if MEAN not in arrays or arrays[MEAN].shape != (size,):
        found = list(arrays[MEAN].shape) if MEAN in arrays else "no"
        raise CheckpointError(f"the checkpoint has {found} parameters: this policy has [{size}]")
    try:
        progress = Progress.restored(arrays, PROGRESS)
        normaliser = normaliser.restored(arrays, SEEN)
        _ = [arrays[path] for path in (BEST, *normaliser.features(BEST_FEATURES))]
    except KeyError as error:
        raise CheckpointError(f"the checkpoint holds no {error}: another version made it") from error
    moving = normaliser.features("")
    for path, array in features.items():
        stored = arrays.get(FEATURES + path)
        if path not in moving and (stored is None or not np.array_equal(stored, array)):
            raise CheckpointError(f"features {path} of the checkpoint are not those of this config")
    state = {p.removeprefix(STRATEGY): a for p, a in arrays.items() if p.startswith(STRATEGY)}
    try:
        return jax.tree.map(jnp.asarray, from_path(like, state)), normaliser, progress
    except ValueError as error:
        raise CheckpointError(f"the strategy's state is another one: {error}") from error


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
        **_outcomes(played, ""),
    }


def _seconds(played: Evaluations) -> float:
    """Wall time inside these episodes, added up over the workers."""
    return sum(episode.seconds for row in played.episodes for episode in row)


def _held_out(
    config: ESConfig, evaluator: Evaluator, mean: np.ndarray, normaliser: Normaliser
) -> tuple[Record, Evaluations]:
    """How the search's mean does on seeds that no generation plays, on the last environment."""
    seeds = range(HELD_OUT_FROM, HELD_OUT_FROM + config.held_out)
    played = evaluator.evaluate(_with(mean[None], normaliser), seeds)
    return {HELD_OUT_RETURN: float(played.returns.mean()), **_outcomes(played, "held_out/")}, played


def _outcomes(played: Evaluations, prefix: str) -> Record:
    """Means of what the environment says of an episode's end in numbers."""
    infos = [episode.info for row in played.episodes for episode in row]
    numbers = [n for n in infos[0] if all(isinstance(info.get(n), (bool, int, float)) for info in infos)]
    return {prefix + name: float(played.outcome(name).mean()) for name in numbers}
