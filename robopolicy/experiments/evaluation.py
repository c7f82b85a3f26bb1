"""Unseen episodes of a player: how they went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.task import check_ending, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.players import Who, player
from robopolicy.training.rollout import Act, Episode, run_episode

FIRST_SEED = 9000  # far from small seeds, which people try by hand


def seeds_from(seed: int, episodes: int, fewest: int = 1) -> range:
    """The seeds of so many episodes; raises ValueError for a bad first seed or number."""
    if episodes < fewest:
        raise ValueError(f"episodes is {episodes}: it must be {fewest} or more")
    if seed < 0:
        raise ValueError(f"seed is {seed}: it must be 0 or more")
    return range(seed, seed + episodes)


@dataclass(frozen=True)
class Evaluation:
    """How a player did on E episodes.

    Attributes:
      player: its name.
      environment: where it played.
      seeds: of the episodes.
      episodes: what `run_episode` returned for each.
      outcomes: the names that the task declares for its outcomes.
      latency: median wall time of a call of the policy, s.
    """

    player: str
    environment: Environment
    seeds: tuple[int, ...]
    episodes: tuple[Episode, ...]
    outcomes: tuple[str, ...]
    latency: float

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
        """How many episodes each cause ended."""
        return dict(sorted(Counter(episode.info["cause"] for episode in self.episodes).items()))

    def mean(self, outcome: str) -> float:
        """Mean of an outcome at the end of the episodes."""
        return float(np.mean([episode.info[outcome] for episode in self.episodes]))

    def summary(self) -> dict[str, Any]:
        """The evaluation as JSON can hold it."""
        return {
            "policy": self.player,
            **{name: getattr(self.environment, name) for name in ("task", "preset", "engine")},
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
    who: Who,
    env: str | gymnasium.Env[Any, Any] | Environment,
    seeds: Sequence[int] = range(FIRST_SEED, FIRST_SEED + 20),
    *,
    on_begin: Callable[[], None] = lambda: None,
    on_episode: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Play an episode from each of `seeds`; the same player and seeds give the same bits.

    Args:
      who: a policy, the name of a run, of a shipped policy or of a baseline, or a function from observation
        to action.
      env: an environment, which is played on as it is, or what one is made from.
      seeds: of the episodes, one or more of 0 and above.
      on_begin: called once, when the input is checked.
      on_episode: called after each episode.

    Raises ValueError or FileNotFoundError, in one line, for what cannot be played, and ValueError for an
    `info` that does not say how an episode ended.
    """
    if not len(seeds) or min(seeds) < 0:
        raise ValueError(f"seeds is {list(seeds)}: it must be one or more numbers of 0 or more")
    environment = Environment.of(env)
    playing = player(who, environment.task)
    latencies: list[float] = []

    def timed(act: Act) -> Act:
        def step(observation: Any) -> Any:
            began = time.perf_counter()
            action = act(observation)
            latencies.append(time.perf_counter() - began)
            return action

        return step

    episodes = []
    with opened(env if isinstance(env, gymnasium.Env) else environment, playing.shapes) as made:
        task = task_of(made)
        on_begin()
        for seed in seeds:
            episodes.append(run_episode(made, timed(playing.act_in(made, seed)), int(seed)))
            check_ending(task, episodes[-1].info)
            on_episode()
        outcomes = tuple(outcome.name for outcome in task.outcomes)
    latency = float(np.median(latencies))
    return Evaluation(playing.name, environment, tuple(seeds), tuple(episodes), outcomes, latency)
