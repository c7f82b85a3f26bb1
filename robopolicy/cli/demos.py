"""robopolicy demos"""

from __future__ import annotations

import json as json_format
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.provenance import git_revision, versions
from robopolicy.cli.tasks import SWEEP, TASKS, check_task, make_task
from robopolicy.envs.physics import ENGINES, default_engine, renderer
from robopolicy.naming import one_of


@dataclass(frozen=True)
class Demos:
    """Record demonstrations of a task into a Minari dataset.

    For example:
        robopolicy demos --episodes 200 --out datasets/sweep-v0

    The dataset appears once it is complete; the same command goes on with a recording that was interrupted.
    """

    out: Path
    """Folder of the dataset; its name must end in a version, as in sweep-v0."""
    task: str = SWEEP
    """Task to demonstrate."""
    episodes: int = 200
    """Episodes to keep."""
    seed: int = 0
    """Seed of the first one."""
    noise: float = 0.0
    """Standard deviation of noise on the actions, which are kept as executed and as intended."""
    keep_failed: bool = False
    """Keep episodes that left a ball on the table; without it another seed is played for each."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco, and what draws the images. Default: bullet where it is installed."""
    image_size: int = 500
    """Pixels a side of the camera's image."""
    balls: int = 20
    """Balls on the table."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that record; the dataset does not depend on their number."""
    json: Annotated[bool, tyro.conf.arg(help="Print what was recorded as JSON on stdout.")] = False

    def run(self) -> None:
        """Record."""
        check_task(self.task, (SWEEP,))
        from robopolicy.cli.progress import RecordingProgress
        from robopolicy.training.datasets import FORMAT
        from robopolicy.training.recording import RecordingConfig, check_recording, record
        from robopolicy.training.worker import EnvironmentSpec

        config = RecordingConfig(self.episodes, self.seed, self.noise, self.keep_failed)
        one_of("engine", self.engine, ENGINES)
        check_recording(self.out, self.workers)
        settings = {"engine": self.engine, "balls": self.balls, "image_size": self.image_size}
        make_task(self.task, self.engine, "paper", None, balls=self.balls, image_size=self.image_size).close()
        environment = EnvironmentSpec(TASKS[self.task].id, settings, self.task)
        about = {
            "task": self.task,
            "format": FORMAT,
            "environment": {"id": environment.id, **settings},
            "recording": asdict(config),
            "renderer": renderer(self.engine),
            "versions": versions(),
            "git": git_revision(),
        }
        with RecordingProgress(self.episodes, self.task) as progress:
            kept = record(config, environment, self.out, about, self.workers, progress.episode)
        result: dict[str, Any] = {
            "dataset": str(self.out),
            "episodes": len(kept),
            "steps": sum(episode.steps for episode in kept),
            "fraction_in_bowls_mean": sum(episode.score for episode in kept) / len(kept),
            "seeds": [episode.seed for episode in kept],
        }
        print(json_format.dumps(result) if self.json else _words(result))


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['dataset']}: {result['episodes']} episodes, {result['steps']} steps, "
        f"{result['fraction_in_bowls_mean']:.1%} of the balls in bowls"
    )
