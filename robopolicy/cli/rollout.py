"""robopolicy rollout"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.progress import CountingProgress
from robopolicy.envs.registry import task_class
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.films import film
from robopolicy.experiments.runs import played_on


@dataclass(frozen=True)
class Rollout:
    """Film an episode of one policy, or of several side by side on the same course.

    On stepping stones: the robot, the footholds that were chosen ringed, both depth images, in red the pixels
    that the attention masked out, and how much each token is attended to. Of the bimanual sweep: what its
    camera sees, and the attention over it. Beneath: return, progress, and FLOPs of a policy step.

    For example:
        robopolicy rollout runs/first --video walk.mp4
        robopolicy rollout stepping-stones-angular-8x8 random --video both.mp4 --slow 4
        robopolicy rollout bimanual-sweep-angular --sheet sweep.png --rerun sweep.rrd
    """

    policies: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN|oracle|blind|random [...]")]
    ]
    """Run folders, names of shipped policies, or baselines; up to nine."""
    video: Path | None = None
    """The mp4 to write."""
    sheet: Path | None = None
    """A contact sheet to write, a png of twelve moments."""
    rerun: Path | None = None
    """A recording for Rerun to write, an rrd of poses, images and numbers; needs rerun-sdk."""
    task: Annotated[str | None, tyro.conf.arg(aliases=("--env",))] = None
    """Task to play, stepping-stones, bimanual-sweep or module:Name-v0. Default: what the first run was
    trained on."""
    seed: int = FIRST_SEED
    """Seed of the episode."""
    engine: str | None = None
    """Physics engine, bullet or mujoco. Default: the one that the first run was trained on; for baselines
    alone, bullet where it is installed."""
    preset: str | None = None
    """Variant of the task; default: its first one, paper."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    size: tuple[int, int] = (960, 540)
    """Width and height of each policy's picture, both even."""
    slow: float = 1.0
    """How many times slower than life the video is; slow stepping stones show every control period."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play and film."""
        environment = played_on(self.policies, self.task, self.engine, self.preset, self.episode_seconds)
        with CountingProgress(f"filming {', '.join(self.policies)}", None, "steps") as progress:
            episodes = film(
                self.policies,
                environment,
                self.video,
                seed=self.seed,
                size=self.size,
                slow=self.slow,
                sheet=self.sheet,
                rerun=self.rerun,
                on_begin=progress.begin,
                on_step=progress.advance,
            )
        files = {name: getattr(self, name) for name in ("video", "sheet", "rerun")}
        written = {name: str(path) for name, path in files.items() if path is not None}
        result = {**written, "task": environment.task, "seed": self.seed, "episodes": episodes}
        print(json_format.dumps(result) if self.json else _words(result, list(written.values())))


def _words(result: dict[str, Any], files: list[str]) -> str:
    lines = []
    for episode in result["episodes"]:
        outcomes = task_class(result["task"]).outcomes
        told = ", ".join(outcome.said.format(episode[outcome.name]) for outcome in outcomes)
        lines.append(
            f"{episode['policy']} on seed {result['seed']}: {told}, return {episode['return']:.2f}, "
            f"ended by {episode['cause']}"
        )
    return "\n".join([*lines, *files])
