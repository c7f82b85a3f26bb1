"""robopolicy train bc"""

from __future__ import annotations

import json as json_format
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.progress import CloningProgress
from robopolicy.cli.resumed import command_to_resume
from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import check_name, check_settings
from robopolicy.experiments.default_policies import VISION_PERFORMER, check_kind
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.train_bc import train_bc
from robopolicy.naming import one_of
from robopolicy.settings import check_types
from robopolicy.training.bc import BCConfig
from robopolicy.training.checkpoint import RunFolder

SWEEP = "bimanual-sweep"
ROUNDS, LANGEVIN_STEPS = 3, 100  # of a search for an action
CACHE = "cache"  # a setting that runs of earlier versions have, and that does nothing now


@dataclass(frozen=True)
class TrainBC:
    """Clone the behaviour of demonstrations.

    For example:
        robopolicy demos --episodes 200 --out datasets/sweep-v0
        robopolicy train bc --data datasets/sweep-v0 --out runs/clone --rollouts 10
        robopolicy train bc --preset tiny --data datasets/small-v0 --out runs/quick --steps 600

    Ctrl-C or SIGTERM stops after the step in progress; --resume goes on to the same bits as if it had not.
    """

    out: Path
    """Folder to keep the run in; it must not exist, or be that of a run to --resume."""
    data: Path | None = None
    """Dataset of demonstrations, as robopolicy demos records it."""
    task: Annotated[str, tyro.conf.arg(aliases=("--env",))] = SWEEP
    """Task to learn."""
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention mechanism, such as softmax or "positive(m=128)"."""
    preset: str = "small"
    """Size of the policy: tiny, small or base."""
    patch: int | None = None
    """Side of a token, in pixels; default: the largest that gives twelve tokens a side or more."""
    qk_norm: str = "unit"
    """What is done to queries and keys: unit (length one) or tempered (the usual scaling)."""
    head: str = "autoregressive"
    """How actions are chosen: autoregressive, derivative_free or langevin, which search for the action of the
    highest score, or squared_error, which regresses it."""
    samples: int = 128
    """Candidates at a time when an action is searched for."""
    iterations: int | None = None
    """Rounds of derivative_free, default 3, or steps of langevin, default 100."""
    steps: int = 2000
    """Optimiser steps in all, those before a --resume included."""
    batch: int = 32
    """Demonstrated steps in an optimiser step."""
    accumulate: int = 1
    """Parts that a batch is cut into, for batches beyond memory."""
    learning_rate: float = 1e-3
    """The highest, after the warm-up."""
    warmup: int = 200
    """Steps until then."""
    weight_decay: float = 1e-4
    """Of AdamW, on matrices."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    ema: float = 0.999
    """Decay of the running mean of parameters, which is the policy."""
    negatives: int = 64
    """Uniform actions that a demonstrated one must stand out from."""
    mirror: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: False)")] = True
    """Show no frame in a mirror; without it half of them are."""
    jitter: float = 0.05
    """Share by which the brightness of each colour is varied."""
    validation: float = 0.05
    """Share of the episodes that are set aside."""
    validate_every: int = 250
    """Steps between two looks at them."""
    rollout_every: int = 0
    """Steps between two evaluations in the simulator, besides that at the end; 0 for none."""
    rollouts: int = 0
    """Episodes of such an evaluation; 0 for none at all."""
    nonfinite: str = "stop"
    """What follows a loss that is not finite, whose step is undone in any case: stop or skip."""
    precision: str = "auto"
    """float32, bfloat16 (of products, while training), or auto: bfloat16 on an accelerator."""
    engine: str | None = None
    """Physics engine of rollouts; default: that of the dataset."""
    episode_seconds: float | None = None
    """Longest episode of rollouts, in simulated seconds."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Processes that play rollouts."""
    seed: int = 0
    """Fixes every bit of the run."""
    checkpoint_every: int = 250
    """Steps between two checkpoints."""
    wandb: str | None = None
    """Weights & Biases project to log to, too."""
    resume: bool = False
    """Go on with the run in --out, with its settings where none are given."""
    resume_from: int | None = None
    """Go on after this step's checkpoint, or from the beginning with 0; what the run has beyond it moves to
    its folder set-aside-N."""
    json: Annotated[bool, tyro.conf.arg(help="Print the last record as JSON on stdout.")] = False

    def begun(self) -> TrainBC:
        """The settings that the run in `out` was begun with.

        Raises FileNotFoundError where there is no run, ValueError where its config is not one of a run.
        """
        folder = RunFolder(self.out)
        given = folder.config().get("command")
        if not isinstance(given, dict) or given.keys() - {CACHE} != set(_kept()):
            raise ValueError(f"out is {str(self.out)!r}: its config.json is none of a cloning run")
        where = f"{str(folder.config_path)!r}:"
        data = given["data"]
        if not isinstance(data, str | None):
            raise ValueError(f"{where} data is {data!r}: it must be a path")
        plain = {name: value for name, value in given.items() if name not in ("data", CACHE)}
        check_types(where, plain, TrainBC)
        return TrainBC(self.out, data=None if data is None else Path(data), **plain)

    def run(self) -> None:
        """Train. Everything that can be refused is refused before the folder is made."""
        check_kind(check_name(self.task), VISION_PERFORMER)
        if self.data is None:
            raise ValueError("data is not given: it must be a dataset of robopolicy demos")
        config = BCConfig(**{f.name: getattr(self, f.name) for f in fields(BCConfig)})
        given = {name: getattr(self, name) for name in ("engine", "episode_seconds")}
        settings = {name: value for name, value in given.items() if value is not None}
        if self.engine is not None:
            one_of("engine", self.engine, ENGINES)
        check_settings(self.task, settings)
        iterations = self.iterations
        if iterations is None:
            iterations = LANGEVIN_STEPS if self.head == "langevin" else ROUNDS
        with CloningProgress(config, f"{self.attention} on {self.task}") as progress:
            run = train_bc(
                self.attention,
                self.data,
                config,
                out=self.out,
                env=Environment(self.task, **settings),
                preset=self.preset,
                settings={
                    "patch": self.patch,
                    "qk_norm": self.qk_norm,
                    "head": self.head,
                    "samples": self.samples,
                    "iterations": iterations,
                },
                precision=self.precision,
                workers=self.workers,
                resume=self.resume,
                resume_from=self.resume_from,
                wandb=self.wandb,
                command={name: _plain(getattr(self, name)) for name in _kept()},
                hooks=progress.hooks(),
            )
            progress.done(run.record, command_to_resume(self, "bc"))
        if self.json:
            print(json_format.dumps(run.record))


def _kept() -> list[str]:
    """Settings that a run keeps: not those of one part of it."""
    return [
        f.name
        for f in fields(TrainBC)
        if f.name not in ("out", "resume", "resume_from", "json", "workers", "wandb")
    ]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
