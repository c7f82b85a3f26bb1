"""robopolicy rollout"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robopolicy.cli.options import Engine, EpisodeSeconds, Json, Preset, Renderer, Robot, Seed, Task
from robopolicy.cli.progress import CountingProgress
from robopolicy.envs.registry import task_class
from robopolicy.experiments.environments import others_of
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.films import film
from robopolicy.experiments.runs import played_on


@dataclass(frozen=True)
class Rollout:
    """Film an episode of one policy, or of several side by side on the same course.

    On stepping stones, the film shows the robot with its chosen footholds ringed, both depth images with the
    pixels that the attention masks out in red, and the attention of each token. On the bimanual sweep, it
    shows the camera image with the attention over it. Below: return, progress, and FLOPs of a policy step.

    For example:
        robopolicy rollout runs/first --video walk.mp4
        robopolicy rollout stepping-stones-angular-8x8 random --video both.mp4 --slow 4
        robopolicy rollout bimanual-sweep-best --sheet sweep.png --rerun sweep.rrd
    """

    policies: Positional[Annotated[tuple[str, ...], arg(metavar="RUN|oracle|blind|random [...]")]]
    """Run folders, names of shipped policies, or baselines; up to nine."""
    video: Path | None = None
    """Video to write: .mp4."""
    sheet: Path | None = None
    """Contact sheet of twelve moments to write: .png."""
    rerun: Path | None = None
    """Rerun recording of poses, images and numbers to write: .rrd; needs rerun-sdk."""
    task: Task = None
    seed: Seed = FIRST_SEED
    engine: Engine = None
    preset: Preset = None
    episode_seconds: EpisodeSeconds = None
    renderer: Renderer = None
    robot: Robot = None
    size: tuple[int, int] = (960, 540)
    """Width and height of each policy's picture, both even, in pixels."""
    slow: float = 1.0
    """Slow motion: how many times slower than life. Slow stepping stones show every control period."""
    json: Json = False

    def run(self) -> None:
        """Play and film."""
        environment = played_on(
            self.policies,
            self.task,
            self.engine,
            self.preset,
            self.episode_seconds,
            self.renderer,
            others_of(robot=self.robot),
        )
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
    outcomes = task_class(result["task"]).outcomes
    lines = []
    for episode in result["episodes"]:
        words = "".join(f"{outcome.phrase.format(episode[outcome.name])}, " for outcome in outcomes)
        lines.append(
            f"{episode['policy']} on seed {result['seed']}: {words}return {episode['return']:.2f}, "
            f"ended by {episode['cause']}"
        )
    return "\n".join([*lines, *files])
