"""Evaluation of a player on unseen episodes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from numbers import Real
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.task import check_ending, named, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.players import Player, PlayerLike, check_match, player
from robopolicy.naming import one_of
from robopolicy.settings import check_count, check_counts
from robopolicy.training.capacity import check_workers
from robopolicy.training.pool import LocalPool
from robopolicy.training.rollout import HELD_OUT_FROM, MOST_HELD_OUT, Act, Episode, run_episode

LAST_SEED = 2**32 - 1
NO_PARAMETERS = np.zeros((1, 0), np.float32)  # of a graph that holds them
FIRST_SEED = HELD_OUT_FROM + MOST_HELD_OUT  # far from small seeds, which people try by hand


def seeds_from(seed: int, episodes: int, fewest: int = 1) -> range:
    """The seeds of `episodes` episodes, the first one `seed`; raises ValueError for a bad argument."""
    check_count("seed", seed, 0, LAST_SEED)
    check_count("episodes", episodes, fewest, LAST_SEED + 1 - seed)
    return range(seed, seed + episodes)


def check_seeds(seeds: Iterable[int]) -> tuple[int, ...]:
    """`seeds` as plain numbers; raises ValueError unless they are one or more whole numbers of 32 bits."""
    try:
        numbers = tuple(seeds)
    except TypeError:
        numbers = ()
    if not numbers:
        raise ValueError(f"seeds is {seeds!r}: it must be a list or a range of one or more whole numbers")
    check_counts("seeds", numbers, 0, LAST_SEED)
    return tuple(map(int, numbers))


@dataclass(frozen=True)
class Evaluation:
    """The result of a player on E episodes.

    Attributes:
      player: name of the player.
      environment: settings of the environment.
      seeds: seeds of the episodes.
      episodes: result of each episode.
      outcomes: names of the outcomes that the task declares.
      latency: median wall time of a call of the policy, s; None if several workers played.
    """

    player: str
    environment: Environment
    seeds: tuple[int, ...]
    episodes: tuple[Episode, ...]
    outcomes: tuple[str, ...]
    latency: float | None

    @property
    def returns(self) -> NDArray[np.float64]:
        """Return of each episode, [E]."""
        return np.array([episode.total for episode in self.episodes])

    @property
    def success_rate(self) -> float:
        """Share of the episodes that succeeded."""
        return float(np.mean([episode.info["success"] for episode in self.episodes]))

    @property
    def causes(self) -> dict[str, int]:
        """Number of episodes that ended by each cause."""
        return dict(sorted(Counter(episode.info["cause"] for episode in self.episodes).items()))

    def mean(self, outcome: str) -> float:
        """Mean of an entry of `info` at the end of the episodes. Raises ValueError for another name."""
        last = self.episodes[0].info
        one_of("outcome", outcome, [n for n, value in last.items() if isinstance(value, (Real, np.bool_))])
        return float(np.mean([episode.info[outcome] for episode in self.episodes]))

    def summary(self) -> dict[str, Any]:
        """The evaluation as JSON can hold it."""
        wrappers = {"wrappers": list(self.environment.wrappers)} if self.environment.wrappers else {}
        return {
            "policy": self.player,
            **self.environment.recorded,
            **wrappers,
            "episodes": len(self.seeds),
            "seeds": list(self.seeds),
            "return_mean": float(self.returns.mean()),
            "return_std": float(self.returns.std()),
            "success_rate": self.success_rate,
            **{f"{name}_mean": self.mean(name) for name in self.outcomes},
            "causes": self.causes,
            "returns": self.returns.tolist(),
        }


def evaluate(
    who: PlayerLike,
    env: str | gymnasium.Env[Any, Any] | Environment,
    seeds: Iterable[int] = range(FIRST_SEED, FIRST_SEED + 20),
    *,
    workers: int = 1,
    on_begin: Callable[[], None] = lambda: None,
    on_episode: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Play an episode for each seed. The same player and seeds give the same bits.

    Args:
      who: a policy; the folder of a run; the name of a shipped policy or a baseline (`oracle`, `blind`,
        `random`); or a function from observation to action.
      env: an environment, or the name of a task.
      seeds: seeds of the episodes, one or more.
      workers: processes that play the episodes of a policy, unless `env` is an environment. Results do not
        depend on their number.
      on_begin: called once the input is checked.
      on_episode: called after each episode.

    Raises ValueError or FileNotFoundError, in one line, for bad input, for an action of the wrong shape, and
    for an `info` that lacks a declared outcome at an episode's end; EpisodeError with several workers.
    """
    numbers = check_seeds(seeds)
    check_workers(workers)
    environment = Environment.of(env)
    playing = player(who, environment.task)
    workers = 1 if isinstance(env, gymnasium.Env) or playing.graph is None else min(workers, len(numbers))
    with opened(env if isinstance(env, gymnasium.Env) else environment, playing.shapes) as instance:
        task = task_of(instance)
        check_match(playing.policy, task, environment.title)
        on_begin()
        if workers == 1:
            episodes, latency = _played_here(playing, instance, numbers, on_episode)
        else:
            episodes, latency = _played_by(workers, playing, environment, numbers, on_episode), None
        for seed, episode in zip(numbers, episodes, strict=True):
            if not np.isfinite(episode.total):
                raise ValueError(
                    f"environment {environment.title!r}: the return of seed {seed} is {episode.total}: "
                    "its observations and rewards must be finite"
                )
            check_ending(named(task), task.outcomes, episode.info)
        outcomes = tuple(outcome.name for outcome in task.outcomes)
    return Evaluation(playing.name, environment, numbers, tuple(episodes), outcomes, latency)


def _played_here(
    playing: Player, env: gymnasium.Env[Any, Any], seeds: Sequence[int], on_episode: Callable[[], None]
) -> tuple[list[Episode], float]:
    """The episodes, and the median wall time of a call of the policy (s)."""
    latencies: list[float] = []

    def timed(act: Act) -> Act:
        def step(observation: Any) -> Any:
            began = time.perf_counter()
            action = act(observation)
            latencies.append(time.perf_counter() - began)
            return action

        return step

    episodes = []
    for seed in seeds:
        episodes.append(run_episode(env, timed(playing.act_in(env, seed)), seed))
        on_episode()
    return episodes, float(np.median(latencies))


def _played_by(
    workers: int,
    playing: Player,
    environment: Environment,
    seeds: Sequence[int],
    on_episode: Callable[[], None],
) -> list[Episode]:
    assert playing.graph is not None
    spec = environment.showing(playing.shapes).spec()
    with closing(LocalPool([spec], playing.graph(), workers)) as pool:
        return pool.evaluate(NO_PARAMETERS, seeds, on_episode=on_episode).episodes[0]
