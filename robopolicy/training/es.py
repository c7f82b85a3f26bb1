"""Evolution strategies: ask for a population, play it, tell its returns."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.training.checkpoint import BEST, FEATURES, MEAN, CheckpointError, RunFolder
from robopolicy.training.evaluate import Evaluations, Evaluator
from robopolicy.training.metrics import MetricsLog, Record
from robopolicy.training.strategies import Settings, Strategy, sanitised, strategy

STRATEGY = "strategy/"
STAGE, RECENT, BEST_RETURN = "stage", "recent", "best_return"
HELD_OUT_FROM = 8000  # first of the held-out seeds; those of generations are spread over 32 bits
HELD_OUT_RETURN = "held_out/return"
PATIENCE = 3  # generations whose mean return decides about an advance


@dataclass(frozen=True)
class ESConfig:
    """Settings of a run.

    Attributes:
      generations: how many to run in all.
      population: candidates a generation.
      episodes: episodes a candidate. All candidates of a generation play the same seeds, so that they
        differ by what they do and not by the terrain; every generation has new ones.
      advance_at: the curriculum. Once the mean return of three generations on environment i reaches
        advance_at[i], the run goes on to environment i + 1.
      evaluate_every: generations between two evaluations of the search's mean on held-out seeds of the last
        environment; the untrained policy and the last generation are always evaluated. The mean that did
        best at a multiple of `evaluate_every` is kept in every checkpoint.
      held_out: episodes of such an evaluation, the same ones in every run.
      strategy: name in `strategies.STRATEGIES`.
      sigma: standard deviation of candidates around the mean.
      learning_rate: of Adam.
      seed: fixes everything, whatever the number of workers.
      checkpoint_every: generations between two checkpoints; the last one is always saved.
    """

    generations: int = 100
    population: int = 48
    episodes: int = 1
    advance_at: tuple[float, ...] = ()
    evaluate_every: int = 10
    held_out: int = 10
    strategy: str = "open_es"
    sigma: float = 0.1
    learning_rate: float = 0.06
    seed: int = 0
    checkpoint_every: int = 1

    def __post_init__(self) -> None:
        for name in ("generations", "episodes", "evaluate_every", "held_out", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        if not np.isfinite(self.advance_at).all():
            raise ValueError(f"advance_at is {self.advance_at}: it must be finite returns")
        self.make_strategy()

    def make_strategy(self) -> Strategy:
        """The strategy of this config; raises ValueError for settings that it cannot take."""
        return strategy(self.strategy, Settings(self.population, self.sigma, self.learning_rate))


def generation_seeds(config: ESConfig, generation: int) -> list[int]:
    """The seeds that every candidate of `generation` plays."""
    sequence = np.random.SeedSequence([config.seed, generation])
    return [int(seed) for seed in sequence.generate_state(config.episodes, np.uint32)]


def train(
    config: ESConfig,
    *,
    run: RunFolder,
    initial: ArrayLike,
    features: Mapping[str, Any],
    evaluator: Evaluator,
    resume: bool = False,
    on_generation: Callable[[Record], None] | None = None,
    on_episode: Callable[[], None] | None = None,
) -> Record | None:
    """Run generations until `config.generations`, saving to `run` as it goes; returns the last record.

    Args:
      config: settings.
      run: a folder that `RunFolder.create` has made.
      initial: flat parameters [P] that the search starts around.
      features: the policy's frozen features, arrays by path; kept in every checkpoint.
      evaluator: plays the episodes.
      resume: go on after the latest checkpoint, to the same bits as if there had been no stop; from the
        beginning where the run was stopped before its first one.
      on_generation, on_episode: told of progress.

    Ctrl-C ends the run after the generation in progress; a second one ends it at once. Raises
    CheckpointError where a checkpoint to resume from has other shapes than this config.
    """
    if len(config.advance_at) != len(evaluator.labels) - 1:
        raise ValueError(
            f"advance_at is {config.advance_at}: {len(evaluator.labels)} environments need "
            f"{len(evaluator.labels) - 1} of it"
        )
    search = config.make_strategy()
    key = jax.random.key(config.seed)
    mean = jnp.asarray(initial, jnp.float32)
    state = search.init(jax.random.fold_in(key, 0), mean)
    stage, done = 0, 0
    recent: list[float] = []
    best, best_return = np.asarray(mean), -np.inf
    if resume and run.generations():
        done, arrays = run.load()
        state = _restored(arrays, state, features, mean.size)
        stage, recent = int(arrays[STAGE]), [r for r in arrays[RECENT].tolist() if np.isfinite(r)]
        best, best_return = arrays[BEST], float(arrays[BEST_RETURN])
    log = MetricsLog(run.path, after=done if done else -1)
    record: Record | None = None
    with closing(log), _stop_after_generation() as stopped:
        if not done:
            record = {"generation": 0, **_held_out(config, evaluator, best)}
            best_return = float(np.nan_to_num(record[HELD_OUT_RETURN], nan=-np.inf))
            log.add(record)
            if on_generation is not None:
                on_generation(record)
        for generation in range(done + 1, config.generations + 1):
            began = time.monotonic()
            population, state = search.ask(jax.random.fold_in(key, 2 * generation), state)
            candidates = np.asarray(population, np.float32)
            seeds = generation_seeds(config, generation)
            played = evaluator.evaluate(candidates, seeds, stage, on_episode)
            returns, broken = sanitised(played.returns.mean(axis=1))
            state = search.tell(
                jax.random.fold_in(key, 2 * generation + 1),
                population,
                jnp.asarray(returns, jnp.float32),
                state,
            )
            record = {
                "generation": generation,
                "environment": evaluator.labels[stage],
                **_record(played, returns, broken, time.monotonic() - began),
            }
            last = generation == config.generations or stopped()
            centre = np.asarray(search.mean(state), np.float32)
            planned = generation % config.evaluate_every == 0
            if last or planned:
                record |= _held_out(config, evaluator, centre)
            # What a stop evaluates besides must leave no trace in a run that goes on.
            if planned and record[HELD_OUT_RETURN] > best_return:
                best, best_return = centre, record[HELD_OUT_RETURN]
            recent = [*recent, float(returns.mean())][-PATIENCE:]
            settled = stage < len(config.advance_at) and len(recent) == PATIENCE
            if settled and np.mean(recent) >= config.advance_at[stage]:
                stage, recent = stage + 1, []
            # Logged before it is saved: a resumed run drops what was logged beyond its checkpoint.
            log.add(record)
            if last or generation % config.checkpoint_every == 0:
                run.save(
                    generation,
                    {
                        MEAN: centre,
                        BEST: best,
                        BEST_RETURN: np.asarray(best_return),
                        STAGE: np.asarray(stage),
                        RECENT: np.array([*recent, *[np.nan] * (PATIENCE - len(recent))]),
                        **{FEATURES + path: np.asarray(array) for path, array in features.items()},
                        **{STRATEGY + path: array for path, array in by_path(state).items()},
                    },
                )
            if on_generation is not None:
                on_generation(record)
            if last:
                break
    return record


def _restored(arrays: Arrays, like: Any, features: Mapping[str, Any], size: int) -> Any:
    """The strategy's state from a checkpoint that must belong to this config."""
    if MEAN not in arrays or arrays[MEAN].shape != (size,):
        found = list(arrays[MEAN].shape) if MEAN in arrays else "no"
        raise CheckpointError(f"the checkpoint has {found} parameters: this policy has [{size}]")
    for name in (STAGE, RECENT, BEST, BEST_RETURN):
        if name not in arrays:
            raise CheckpointError(f"the checkpoint holds no {name!r}: another version made it")
    for path, array in features.items():
        stored = arrays.get(FEATURES + path)
        if stored is None or not np.array_equal(stored, array):
            raise CheckpointError(f"features {path} of the checkpoint are not those of this config")
    state = {p.removeprefix(STRATEGY): a for p, a in arrays.items() if p.startswith(STRATEGY)}
    try:
        return jax.tree.map(jnp.asarray, from_path(like, state))
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


def _held_out(config: ESConfig, evaluator: Evaluator, mean: np.ndarray) -> Record:
    """How the search's mean does on seeds that no generation plays, on the last environment."""
    seeds = range(HELD_OUT_FROM, HELD_OUT_FROM + config.held_out)
    played = evaluator.evaluate(mean[None], seeds)
    return {HELD_OUT_RETURN: float(played.returns.mean()), **_outcomes(played, "held_out/")}


def _outcomes(played: Evaluations, prefix: str) -> Record:
    """Means of what the environment says of an episode's end in numbers."""
    infos = [episode.info for row in played.episodes for episode in row]
    numbers = [n for n in infos[0] if all(isinstance(info.get(n), (bool, int, float)) for info in infos)]
    return {prefix + name: float(played.outcome(name).mean()) for name in numbers}


@contextmanager
def _stop_after_generation() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a request, and give back the second its usual meaning."""
    asked = False

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
