"""robopolicy evaluate"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robopolicy.cli.options import (
    Cameras,
    Drift,
    Engine,
    EpisodeSeconds,
    Json,
    Preset,
    Renderer,
    Robot,
    Seed,
    Task,
)
from robopolicy.cli.progress import CountingProgress
from robopolicy.envs.registry import RECORDED, task_class
from robopolicy.experiments.environments import others_of
from robopolicy.experiments.evaluation import FIRST_SEED, evaluate, seeds_from
from robopolicy.experiments.runs import BASELINES, played_on, training_title
from robopolicy.naming import counted
from robopolicy.training.capacity import cores


@dataclass(frozen=True)
class Evaluate:
    """Play unseen episodes and print the results.

    For example:
        robopolicy evaluate oracle --episodes 10
        robopolicy evaluate runs/first --episodes 100 --json
        robopolicy evaluate bimanual-sweep-best --episodes 50
        robopolicy evaluate stepping-stones-memory --drift 0.01
        robopolicy evaluate oracle --robot go2 --episodes 10
        robopolicy evaluate oracle --task bimanual-sweep --episodes 50
    """

    policy: Positional[Annotated[str, arg(metavar="RUN|oracle|blind|random")]]
    """A run folder, the name of a shipped policy, or a baseline."""
    task: Task = None
    episodes: int = 20
    """Episodes to play."""
    seed: Seed = FIRST_SEED
    engine: Engine = None
    preset: Preset = None
    episode_seconds: EpisodeSeconds = None
    renderer: Renderer = None
    robot: Robot = None
    cameras: Cameras = ()
    drift: Drift = None
    workers: int = field(default_factory=cores)
    """Processes that play the episodes of a policy. Results do not depend on their number."""
    json: Json = False

    def run(self) -> None:
        """Play and print."""
        seeds = seeds_from(self.seed, self.episodes)
        environment = played_on(
            [self.policy],
            self.task,
            self.engine,
            self.preset,
            self.episode_seconds,
            self.renderer,
            others_of(self.cameras, self.drift, self.robot),
        )
        with CountingProgress("playing", self.episodes, "episodes") as progress:
            evaluation = evaluate(
                self.policy,
                environment,
                seeds,
                workers=self.workers,
                on_begin=progress.begin,
                on_episode=progress.advance,
            )
        result = evaluation.summary()
        if self.json:
            print(json_format.dumps(result))
            return
        title = evaluation.environment.title
        print(_table(result, title))
        if self.policy not in (*BASELINES, *task_class(result["task"]).players):
            trained_on = training_title(self.policy)
            if trained_on != title:
                print(f"  trained on {trained_on}")


def _table(result: dict[str, Any], title: str) -> str:
    causes = ", ".join(f"{cause} {count}" for cause, count in result["causes"].items())
    outcomes = "".join(
        f"  {outcome.title:9} {outcome.cell.format(result[outcome.mean])}\n"
        for outcome in task_class(result["task"]).outcomes
    )
    success = "" if result["task"] == RECORDED else f"  success   {result['success_rate']:7.1%}\n"
    episodes = counted(result["episodes"], "episodes")
    return (
        f"{result['policy']} on {title}, {episodes} from seed {result['seeds'][0]}\n"
        f"{success}{outcomes}"
        f"  return    {result['return_mean']:7.2f}  (spread {result['return_std']:.2f})\n"
        f"  ended by  {causes}"
    )
