"""robopolicy demos"""

from __future__ import annotations

import json as json_format
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.envs.physics import ENGINES, renderer
from robopolicy.envs.registry import chosen, gymnasium_id, make, task_class
from robopolicy.envs.task import Outcome
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.naming import one_of

SUCCESS = Outcome("success", "success", "{:7.1%}", "{:.0%} success")  # score of a task without outcomes


@dataclass(frozen=True)
class Demos:
    """Record demonstrations of a task into a Minari dataset.

    For example:
        robopolicy demos --episodes 200 --out datasets/sweep-v0

    The dataset appears once it is complete; the same command goes on with a recording that was interrupted.
    """

    out: Path
    """Folder of the dataset; its name must end in a version, as in sweep-v0."""
    task: Annotated[str, tyro.conf.arg(aliases=("--env",))] = "bimanual-sweep"
    """Task to demonstrate: bimanual-sweep, or module:Name-v0 whose environment has a demonstrator."""
    episodes: int = 200
    """Episodes to keep."""
    seed: int = 0
    """Seed of the first one."""
    noise: float = 0.0
    """Standard deviation of noise on the actions, which are kept as executed and as intended."""
    keep_failed: bool = False
    """Keep episodes that left a ball on the table; without it another seed is played for each."""
    engine: str | None = None
    """Physics engine, bullet or mujoco, and what draws the images. Default: bullet where it is installed."""
    image_size: int | None = None
    """Pixels a side of the camera's image; default: the task's, 500 of the bimanual sweep."""
    balls: int | None = None
    """Balls on the table of the bimanual sweep; default: 20."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that record; the dataset does not depend on their number."""
    json: Annotated[bool, tyro.conf.arg(help="Print what was recorded as JSON on stdout.")] = False

    def run(self) -> None:
        """Record."""
        contract = task_class(self.task)
        if contract.demonstrator is None:
            raise ValueError(f"task is {self.task!r}: it has no demonstrator")
        from robopolicy.cli.progress import RecordingProgress
        from robopolicy.training.datasets import FORMAT
        from robopolicy.training.recording import RecordingConfig, check_recording, record
        from robopolicy.training.worker import EnvironmentSpec

        outcomes = tuple(outcome.name for outcome in contract.outcomes)
        score = contract.outcomes[0] if contract.outcomes else SUCCESS
        config = RecordingConfig(self.episodes, self.seed, self.noise, self.keep_failed, outcomes)
        if self.engine is not None:
            one_of("engine", self.engine, ENGINES)
        engine, _ = chosen(self.task, self.engine)
        check_recording(self.out, self.workers)
        given = {"engine": engine, **contract.demo_settings}
        given |= {n: value for n in ("balls", "image_size") if (value := getattr(self, n)) is not None}
        settings = {name: value for name, value in given.items() if value is not None}
        make(self.task, **settings).close()
        environment = EnvironmentSpec(gymnasium_id(self.task), settings, self.task)
        about = {
            "task": self.task,
            "format": FORMAT,
            "environment": {"id": environment.id, **settings},
            "recording": asdict(config),
            "renderer": self.task if engine is None else renderer(engine),
            "versions": versions(),
            "git": git_revision(),
        }
        with RecordingProgress(self.episodes, self.task, score.said) as progress:
            kept = record(config, environment, self.out, about, self.workers, progress.episode)
        result: dict[str, Any] = {
            "dataset": str(self.out),
            "episodes": len(kept),
            "steps": sum(episode.steps for episode in kept),
            score.mean: sum(episode.score for episode in kept) / len(kept),
            "seeds": [episode.seed for episode in kept],
        }
        print(json_format.dumps(result) if self.json else _words(result, score))


def _words(result: dict[str, Any], score: Outcome) -> str:
    return (
        f"{result['dataset']}: {result['episodes']} episodes, {result['steps']} steps, "
        f"{score.title} {score.shown.format(result[score.mean]).strip()}"
    )
