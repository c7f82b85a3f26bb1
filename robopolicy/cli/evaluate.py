"""robopolicy evaluate"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from robopolicy.cli.tasks import STONES, TASKS, check_task, make_task
from robopolicy.envs.physics import default_engine

FIRST_SEED = 9000  # far from small seeds, which people try by hand


@dataclass(frozen=True)
class Evaluate:
    """Play unseen episodes and print how they went.

    Example: robopolicy evaluate oracle --episodes 10
    Example: robopolicy evaluate runs/first --episodes 100 --json
    Example: robopolicy evaluate oracle --task bimanual-sweep --episodes 50
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
        from robopolicy.cli.players import observed, player

        act_for, trained = player(self.policy, self.task)
        seen = observed(self.task, trained)
        env = make_task(self.task, self.engine, self.preset, self.episode_seconds, **seen)
        try:
            result = self._play(env, act_for)
        finally:
            env.close()
        print(json_format.dumps(result) if self.json else _table(result))

    def _play(self, env: Any, act_for: Any) -> dict[str, Any]:
        import numpy as np

        from robopolicy.training.rollout import run_episode

        seeds = list(range(self.seed, self.seed + self.episodes))
        played = [run_episode(env, act_for(env, seed), seed) for seed in seeds]
        returns = np.array([episode.total for episode in played])
        causes = [episode.info["cause"] for episode in played]
        return {
            "policy": self.policy,
            "task": self.task,
            "preset": self.preset,
            "engine": self.engine,
            "episodes": self.episodes,
            "seeds": seeds,
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "success_rate": float(np.mean([episode.info["success"] for episode in played])),
            **{
                outcome.mean: float(np.mean([episode.info[outcome.name] for episode in played]))
                for outcome in TASKS[self.task].outcomes
            },
            "causes": {cause: causes.count(cause) for cause in sorted(set(causes))},
            "returns": returns.tolist(),
        }


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
