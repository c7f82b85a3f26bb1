"""robopolicy train es"""

from __future__ import annotations

import json as json_format
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from robopolicy.cli import DONE, INTERRUPTED
from robopolicy.cli.options import (
    Cameras,
    Drift,
    EpisodeSeconds,
    Json,
    Resume,
    ResumeFrom,
    TrainedTask,
    Wandb,
    command_to_evaluate,
    command_to_resume,
)
from robopolicy.cli.progress import TrainingProgress
from robopolicy.envs.registry import check_imported, check_name, task_class
from robopolicy.experiments.default_policies import IAP, check_kind, new_policy
from robopolicy.experiments.environments import Environment, others_of
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.runs import load
from robopolicy.experiments.train_es import PARTS, Variants, curriculum_of, train_es, with_curriculum
from robopolicy.policies.catalogue import restore
from robopolicy.policies.controls import label
from robopolicy.policies.iap_config import IAPConfig
from robopolicy.settings import check_types, from_json
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig
from robopolicy.training.resume import latest_limits

# Settings of the policy besides its mechanism.
POLICY = ("variant", "patch", "head_dim", "keep", "normalise", "memory_decay", "memory_steps", "memory_for")


@dataclass(frozen=True)
class ESOptions:
    """The options that all trainings by evolution strategies have."""

    task: TrainedTask = "stepping-stones"
    variant: str = "mask"
    """What the policy does with its attention: mask, rank, trans, or query (stepping stones alone); or,
    with the front camera alone (their preset front, or --cameras front), memory: legs without a camera read
    what it showed before."""
    patch: int | None = None
    """Side of a token, in pixels. Default: 2 on stepping stones, and what fits the images elsewhere."""
    head_dim: int = 8
    """Width of queries and keys."""
    keep: float = 0.5
    """Share of the tokens that mask and rank keep."""
    normalise: bool = False
    """Normalise vectors by running statistics that all workers share."""
    memory_decay: float = 0.97
    """Factor, at each step, of all that a memory of attention (--variant memory) or a map has written."""
    memory_steps: int = 40
    """How many steps a memory keeps with exact softmax."""
    memory_for: str = "blind"
    """The legs that read a memory: those without a camera (blind), or all. Policies without a memory ignore
    it."""
    preset: tuple[str, ...] = ()
    """Variants of the task to train on, in the order of a curriculum. Default: that of the task."""
    engine: str | None = None
    """Physics engine: jax (many worlds at once, stepping stones alone), mujoco or bullet. Default: jax where
    task and robot have it and the evaluator is local or device, else bullet if installed, else mujoco."""
    episode_seconds: EpisodeSeconds = None
    robot: str | None = None
    """Robot of the stepping stones: laikago (the default), go2, or the JSON file of a table of your own
    (docs/guides/own-quadruped.md). The engine jax has laikago alone."""
    cameras: Cameras = ()
    drift: Drift = None
    search: ESConfig = field(default_factory=ESConfig)
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    wandb: Wandb = None

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets of the curriculum, in order."""
        return self.preset or curriculum_of(self.task).presets

    @property
    def environment(self) -> Environment:
        """The environment that training begins on. Raises ValueError, in one line, for bad options."""
        check_kind(check_name(self.task), IAP)
        first = next(iter(self.presets), None)
        others = others_of(self.cameras, self.drift, self.robot)
        environment = Environment(self.task, self.engine, first, self.episode_seconds, others)
        return Environment.of(environment, self.evaluator.engine_for(environment))

    @property
    def policy(self) -> dict[str, Any]:
        """The settings of the policy besides its mechanism."""
        return {name: getattr(self, name) for name in POLICY if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class TrainES(ESOptions):
    """Train a policy by evolution strategies.

    For example:
        robopolicy train es --attention "angular_hybrid(m=8, n=8)" --out runs/first --generations 40

    Ctrl-C or SIGTERM stops the run after the current generation. --resume continues it to the same bits.
    """

    out: Path
    """Folder of the run. It must not exist, unless you --resume its run."""
    attention: str = "angular_hybrid(m=8, n=8)"
    """Attention mechanism, such as softmax or "positive_antithetic(m=256)", or a control: all reads the whole
    image without attention, none reads no image."""
    encoder: str = "linear"
    """What reads the masked image: linear, relu or cnn. With --attention all and the front camera
    alone, on the stepping stones, also map or gru, memories without attention."""
    resume: Resume = False
    resume_from: ResumeFrom = None
    json: Json = False

    def stored_command(self) -> TrainES:
        """The command that the run in `out` began with, with the limits of its last resume.

        Raises FileNotFoundError without a run, ValueError if its config.json is not that of such a run.
        """
        folder = RunFolder(self.out)
        stored = folder.config()
        wrong = f"out is {str(self.out)!r}: its config.json is not of a run"
        for name in PARTS[1:]:
            if not isinstance(stored.get(name), dict):
                raise ValueError(f"{wrong}: it has no settings of {name}")
        where = f"{str(folder.config_path)!r}:"
        task, environment = stored.get("task", self.task), stored["environment"]
        check_types(where, {"task": task}, TrainES)
        check_name(self.task)  # imports the module of --env
        check_imported(task, f"task of the run {str(self.out)!r}")
        check_types(where, environment, Variants)
        begun = {**asdict(ESConfig()), **stored["es"]}
        search = from_json(where, ESConfig, begun | latest_limits(folder))
        playing = stored.get("evaluator", {})  # older runs have none
        if not isinstance(playing, dict):
            raise ValueError(f"{wrong}: it has no settings of evaluator")
        evaluator = from_json(where, EvaluatorConfig, {**asdict(EvaluatorConfig()), **playing})
        try:
            policy = restore(stored["policy"])
        except ValueError as error:
            raise ValueError(f"{where} {error}") from error
        if not isinstance(policy, IAPConfig):
            raise ValueError(f"{wrong} of evolution strategies")
        others = environment.get("others", {})
        robot = others.get("robot")
        if isinstance(robot, dict):  # the table of a robot that is not of the package
            robot = str(folder.config_path)
        check_types(where, {**others, "robot": robot}, TrainES)
        try:
            return TrainES(
                out=self.out,
                task=task,
                preset=tuple(environment["presets"]),
                **{name: environment[name] for name in ("engine", "episode_seconds")},
                cameras=tuple(others.get("cameras", ())),
                drift=others.get("drift"),
                robot=robot,
                **{name: getattr(policy, name) for name in ("attention", "encoder", *POLICY)},
                search=search,
                evaluator=evaluator,
            )
        except KeyError as error:
            raise ValueError(f"{wrong}: it has no {error}") from error

    def run(self) -> int:
        """Train. Returns the exit code."""
        environment = self.environment
        search = with_curriculum(self.search, self.task, self.presets)
        settings = {"encoder": self.encoder, **self.policy}
        policy = new_policy(environment, self.attention, seed=search.seed, **settings)
        saved = RunFolder(self.out).generations() if self.resume else []
        if saved and self.resume_from != 0 and self.resume_from in (None, *saved):
            begun = self.stored_command()
            names = ("attention", "encoder", "cameras", *POLICY)
            if all(getattr(begun, name) == getattr(self, name) for name in names):
                policy = load(self.out, self.resume_from)  # as it began, also if Python began the run
        goal = f"{self.presets[-1]} terrain" if self.presets else self.task
        title = f"{label(self.attention, self.encoder)} on {self.task}"
        with TrainingProgress(search, title, goal, task_class(self.task).outcomes) as progress:
            run = train_es(
                policy,
                environment,
                search,
                out=self.out,
                presets=self.presets,
                evaluator=self.evaluator,
                resume=self.resume,
                resume_from=self.resume_from,
                wandb=self.wandb,
                hooks=progress.hooks(),
            )
            again, following = command_to_resume(self, "es"), command_to_evaluate(self.out, self.task)
            is_complete = progress.done(run.record, again, following)
        if self.json:
            print(json_format.dumps(run.record))
        return DONE if is_complete else INTERRUPTED
