"""robopolicy train bc"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from robopolicy.cli import DONE, INTERRUPTED
from robopolicy.cli.options import (
    DatasetCameras,
    EpisodeSeconds,
    Json,
    Renderer,
    Resume,
    ResumeFrom,
    Wandb,
    command_to_evaluate,
    command_to_resume,
    settings_of,
)
from robopolicy.cli.progress import CloningProgress
from robopolicy.envs.registry import check_imported, check_name
from robopolicy.experiments.default_policies import VISION_PERFORMER, check_kind
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.opened_datasets import task_of_data
from robopolicy.experiments.train_bc import train_bc
from robopolicy.experiments.trainings import LATER
from robopolicy.policies.controls import label
from robopolicy.settings import check_types
from robopolicy.training.bc import BCConfig
from robopolicy.training.capacity import cores
from robopolicy.training.checkpoint import RunFolder

ClonedTask = Annotated[
    str | None,
    arg(
        aliases=("--env",),
        help="Task: bimanual-sweep, recorded (the robot of a LeRobot dataset), or module:Name-v0. "
        "Default: that of the first dataset; recorded for another program's LeRobot, bimanual-sweep for its "
        "Minari.",
    ),
]
CACHE = "cache"  # a setting of earlier versions, without effect
NOT_STORED = ("out", "resume", "resume_from", "json", "workers", "wandb")  # may differ in a resumed run


@dataclass(frozen=True)
class Training(BCConfig):
    """Settings of the training."""

    mirror: Annotated[bool, arg(help_behavior_hint="(default: False)")] = True
    """Mirror no frame; without this flag, half of the frames are mirrored."""


@dataclass(frozen=True)
class TrainBC:
    """Clone the behaviour of demonstrations.

    For example:
        robopolicy demos --episodes 200 --out datasets/sweep-v0
        robopolicy train bc --data datasets/sweep-v0 --out runs/clone --rollouts 10
        robopolicy train bc --data datasets/sweep-v0 datasets/round-1-v0 --out runs/round-1
        robopolicy train bc --init runs/round-0 --data datasets/round-1-v0 --out runs/round-1
        robopolicy train bc --preset tiny --data datasets/small-v0 --out runs/quick --steps 600
        robopolicy train bc --history 3 --chunk 4 --data datasets/sweep-v0 --out runs/chunks

    Ctrl-C or SIGTERM stops the run after the current step. --resume continues it; on the same number of
    cores, to the same bits.
    """

    out: Path
    """Folder of the run. It must not exist, unless you --resume its run."""
    data: tuple[Path, ...] = ()
    """Datasets of demonstrations of Minari or LeRobot, one or more. Required for a new run."""
    cameras: DatasetCameras = ()
    task: ClonedTask = None
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention mechanism, such as softmax or "positive(m=128)", or a control: all reads the whole image
    without attention, none reads no image."""
    encoder: str = "transformer"
    """What reads the tokens. Controls, with --attention all: relu (one layer), cnn (convolutions)."""
    preset: str = "small"
    """Size of the policy: tiny, small or base."""
    patch: int | None = None
    """Side of a token, in pixels. Default: the largest that gives twelve tokens a side or more."""
    qk_norm: str = "unit"
    """Scale of queries and keys: unit (length one) or tempered (as usual)."""
    head: str = "squared_error"
    """How actions are chosen: squared_error, a regression; or autoregressive, derivative_free or langevin,
    which search for the action of the highest score."""
    samples: int = 128
    """Candidates in each round of a search for an action; squared_error does not search."""
    iterations: int | None = None
    """Rounds of derivative_free (default 3) or steps of langevin (default 100)."""
    history: int = 1
    """Frames of each image that a step reads: its own, and those of the steps before."""
    chunk: int = 1
    """Actions that are chosen at once, and executed in as many steps."""
    init: Annotated[str | None, arg(metavar="RUN")] = None
    """Run or shipped policy, of the same settings, whose weights the training begins with. If its head is
    another one, the encoder's weights are taken, and the head's are drawn."""
    precision: str = "auto"
    """Precision of products in training: float32, bfloat16, or auto (bfloat16 on an accelerator)."""
    engine: str | None = None
    """Physics engine of rollouts: bullet or mujoco. Default: that of the demonstrations, if installed."""
    episode_seconds: EpisodeSeconds = None
    renderer: Renderer = None
    workers: int = field(default_factory=cores)
    """Processes that play rollouts."""
    training: Training = field(default_factory=Training)
    wandb: Wandb = None
    resume: Resume = False
    resume_from: ResumeFrom = None
    json: Json = False

    def stored_command(self) -> TrainBC:
        """The command that the run in `out` began with.

        Raises FileNotFoundError without a run, ValueError if its config.json is not that of such a run.
        """
        folder = RunFolder(self.out)
        config = folder.config()
        stored = config.get("command")
        if stored is None and isinstance(config.get("bc"), dict):
            raise ValueError(
                f"out is {str(self.out)!r}: Python began its run, so train_bc(..., resume=True) continues it"
            )
        once: dict[str, Any] = {
            "renderer": None,
            "encoder": self.encoder,
            "history": 1,
            "chunk": 1,
            "cameras": [],
            "init": None,
            **LATER["bc"],
        }  # settings that older runs do not have
        stored = {**once, **stored} if isinstance(stored, dict) else {}
        if stored.keys() - {CACHE} != self._stored().keys():
            raise ValueError(f"out is {str(self.out)!r}: its config.json is not of a cloning run")
        where = f"{str(folder.config_path)!r}:"
        data = stored["data"]
        paths = [data] if isinstance(data, str) else data  # older runs have one dataset
        if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
            raise ValueError(f"{where} data is {data!r}: it must be paths")
        settings = {name: value for name, value in stored.items() if name not in ("data", CACHE)}
        check_types(where, settings, TrainBC)
        check_types(where, settings, BCConfig)
        if self.task is not None:
            check_name(self.task)  # imports the module of --env
        if settings["task"] is not None:
            check_imported(settings["task"], f"task of the run {str(self.out)!r}")
        training = {f.name: settings.pop(f.name) for f in fields(BCConfig)}
        settings["cameras"] = tuple(settings["cameras"])
        return TrainBC(self.out, tuple(map(Path, paths)), training=Training(**training), **settings)

    def run(self) -> int:
        """Train. Returns the exit code."""
        if self.task is not None:
            check_kind(check_name(self.task), VISION_PERFORMER)
        if not self.data:
            raise ValueError("data is missing: it must be one or more datasets of demonstrations")
        task = self.task or task_of_data(self.data[0]) or "bimanual-sweep"
        others = {"renderer": self.renderer} if self.renderer else {}
        names = ("encoder", "patch", "qk_norm", "head", "samples", "iterations", "history", "chunk")
        settings = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        with CloningProgress(self.training, f"{label(self.attention, self.encoder)} on {task}") as progress:
            run = train_bc(
                self.attention,
                self.data,
                self.training,
                out=self.out,
                env=Environment(task, self.engine, None, self.episode_seconds, others),
                cameras=self.cameras,
                preset=self.preset,
                settings=settings,
                init=self.init,
                precision=self.precision,
                workers=self.workers,
                resume=self.resume,
                resume_from=self.resume_from,
                wandb=self.wandb,
                command=self._stored(),
                hooks=progress.hooks(),
            )
            again, following = command_to_resume(self, "bc"), command_to_evaluate(self.out, task)
            is_complete = progress.done(run.record, again, following)
        if self.json:
            print(json_format.dumps(run.record))
        return DONE if is_complete else INTERRUPTED

    def _stored(self) -> dict[str, Any]:
        """The settings that are stored in the run's config.json."""
        stored = {field.name: value for field, value in settings_of(self) if field.name not in NOT_STORED}
        return {**stored, "data": [str(path) for path in self.data]}
