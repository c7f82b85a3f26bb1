"""robopolicy evaluate"""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robopolicy.cli.tasks import STONES, TASKS, check_task, make_task
from robopolicy.envs.physics import default_engine

if TYPE_CHECKING:
    from robopolicy.training.rollout import Act

FIRST_SEED = 9000  # far from small seeds, which people try by hand


@dataclass(frozen=True)
class Evaluate:
    """Play unseen episodes and print how they went.

    For example:
        robopolicy evaluate oracle --episodes 10
        robopolicy evaluate runs/first --episodes 100 --json
        robopolicy evaluate oracle --task bimanual-sweep --episodes 50
    """

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|oracle|blind|random")]]
    """A run folder, the name of a shipped policy, or a baseline."""
    task: str = STONES
    """Task to play, stepping-stones or bimanual-sweep."""
    episodes: int = 20
    """How many, on the seeds from --seed on."""
    seed: int = FIRST_SEED
    """Seed of the first episode."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Variant of the task."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play and print."""
        check_task(self.task, tuple(TASKS))
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        result, _ = evaluation(
            self.policy,
            self.task,
            range(self.seed, self.seed + self.episodes),
            engine=self.engine,
            preset=self.preset,
            episode_seconds=self.episode_seconds,
        )
        print(json_format.dumps(result) if self.json else _table(result))


def evaluation(
    policy: str,
    task: str,
    seeds: Sequence[int],
    *,
    engine: str,
    preset: str,
    episode_seconds: float | None,
    on_episode: Callable[[], None] | None = None,
) -> tuple[dict[str, Any], float]:
    """Play RUN|oracle|blind|random on `seeds`: what JSON holds of it, and how long it thinks (s, median).

    Raises ValueError or FileNotFoundError, in one line, for what cannot be played.
    """
    import numpy as np

    from robopolicy.cli.players import observed, player
    from robopolicy.training.rollout import run_episode

    act_for, trained = player(policy, task)
    latencies: list[float] = []

    def timed(act: Act) -> Act:
        def step(observation: Any) -> Any:
            began = time.perf_counter()
            action = act(observation)
            latencies.append(time.perf_counter() - began)
            return action

        return step

    env = make_task(task, engine, preset, episode_seconds, **observed(task, trained))
    played = []
    try:
        for seed in seeds:
            played.append(run_episode(env, timed(act_for(env, seed)), seed))
            if on_episode is not None:
                on_episode()
    finally:
        env.close()
    returns = np.array([episode.total for episode in played])
    causes = [episode.info["cause"] for episode in played]
    result = {
        "policy": policy,
        "task": task,
        "preset": preset,
        "engine": engine,
        "episodes": len(seeds),
        "seeds": list(seeds),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "success_rate": float(np.mean([episode.info["success"] for episode in played])),
        **{
            outcome.mean: float(np.mean([episode.info[outcome.name] for episode in played]))
            for outcome in TASKS[task].outcomes
        },
        "causes": {cause: causes.count(cause) for cause in sorted(set(causes))},
        "returns": returns.tolist(),
    }
    return result, float(np.median(latencies))


def _table(result: dict[str, Any]) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in result["causes"].items())
    outcomes = "".join(
        f"  {outcome.title:9} {outcome.shown.format(result[outcome.mean])}\n"
        for outcome in TASKS[result["task"]].outcomes
    )
    return (
        f"{result['policy']} on {result['task']} ({result['preset']}, {result['engine']}), "
        f"{result['episodes']} episodes from seed {result['seeds'][0]}\n"
        f"  success   {result['success_rate']:7.1%}\n"
        f"{outcomes}"
        f"  return    {result['return_mean']:7.2f}  (spread {result['return_std']:.2f})\n"
        f"  ended by  {causes}"
    )
