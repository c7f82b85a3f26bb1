"""robopolicy demos"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from robopolicy.cli.options import Json, NewEngine, Renderer, ShownTask
from robopolicy.cli.progress import RecordingProgress
from robopolicy.envs.task import Outcome
from robopolicy.experiments.demonstrations import record_demonstrations, score_of
from robopolicy.naming import counted
from robopolicy.training.capacity import cores


@dataclass(frozen=True)
class Demos:
    """Record demonstrations of a task into a dataset of Minari or LeRobot.

    For example:
        robopolicy demos --episodes 200 --out datasets/sweep-v0
        robopolicy demos --from runs/clone --seed 1000 --episodes 40 --out datasets/round-1-v0
        robopolicy demos --episodes 200 --format lerobot --out datasets/sweep-lerobot

    The dataset appears when it is complete. The same command continues a recording that was interrupted.
    """

    out: Path
    """Folder of the dataset. The name of a Minari dataset must end in a version, as in sweep-v0."""
    task: ShownTask = "bimanual-sweep"
    source: Annotated[str | None, arg(aliases=("--from",), metavar="RUN")] = None
    """Run whose policy acts, in the run's environment by default. The demonstrator labels every step."""
    beta: float = 0.0
    """With --from: probability that the demonstrator acts in a step, and not the policy."""
    episodes: int = 200
    """Episodes to keep."""
    seed: int = 0
    """Seed of the first episode."""
    noise: float = 0.0
    """Standard deviation of noise on the demonstrator's actions. The dataset has the intended ones, too. In
    the sweep, some strokes then go to a random stripe."""
    format: str = "minari"
    """Format of the dataset: minari, or lerobot (v3.0)."""
    keep_failed: bool = False
    """Keep demonstrations without success. Without this flag, another seed replaces each of them."""
    preset: str | None = None
    """Variant of the task. Default: the run's, or the task's first."""
    engine: NewEngine = None
    renderer: Renderer = None
    image_size: int | None = None
    """Side of the camera's image, in pixels. Default: that of the run, or of the task; 500 on the sweep."""
    balls: int | None = None
    """Balls on the table of the bimanual sweep. Default: the run's, or 20."""
    workers: int = field(default_factory=cores)
    """Processes that record. The dataset does not depend on their number."""
    json: Json = False

    def run(self) -> None:
        """Record."""
        score = score_of(self.task)
        own = {name: getattr(self, name) for name in ("preset", "renderer", "balls", "image_size")}
        settings = {name: value for name, value in own.items() if value is not None}
        names = ("beta", "episodes", "seed", "noise", "keep_failed", "format", "engine", "workers")
        with RecordingProgress(self.episodes, self.task, score.phrase) as progress:
            result = record_demonstrations(
                self.task,
                self.out,
                run=self.source,
                **{name: getattr(self, name) for name in names},
                settings=settings,
                on_begin=progress.begin,
                on_episode=progress.episode,
            )
        print(json_format.dumps(result) if self.json else _words(result, score))


def _words(result: dict[str, Any], score: Outcome) -> str:
    kept_out = f", {len(result['kept_out'])} kept out" if result["kept_out"] else ""
    episodes = counted(result["episodes"], "episodes")
    return (
        f"{result['dataset']}: {episodes}{kept_out}, {result['steps']:,} steps, "
        f"{score.title} {score.cell.format(result[score.mean]).strip()}"
    )
