"""robopolicy train bc"""

from __future__ import annotations

import json as json_format
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluators import Players
from robopolicy.cli.provenance import git_revision, versions
from robopolicy.cli.resumed import refuse_changes
from robopolicy.cli.tasks import SWEEP, TASKS, check_task, cloned_config
from robopolicy.envs.physics import ENGINES
from robopolicy.naming import one_of
from robopolicy.settings import check_types

ROUNDS, LANGEVIN_STEPS = 3, 100  # of a search for an action
PATHS = ("data", "cache")  # settings that JSON has as words
ROLLOUTS_FROM = 8000  # first seed of the episodes that are played in training; evaluations begin at 9000


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
    task: str = SWEEP
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
    mirror: bool = True
    """Show half of the frames in a mirror."""
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
    cache: Path | None = None
    """File of single frames, made where there is none; default: beside the dataset."""
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
    json: Annotated[bool, tyro.conf.arg(help="Print the last record as JSON on stdout.")] = False

    def begun(self) -> TrainBC:
        """The settings that the run in `out` was begun with.

        Raises FileNotFoundError where there is no run, ValueError where its config is not one of a run.
        """
        from robopolicy.training.checkpoint import RunFolder

        folder = RunFolder(self.out)
        given = folder.config().get("command")
        if not isinstance(given, dict) or given.keys() != set(_kept()):
            raise ValueError(f"out is {str(self.out)!r}: its config.json is none of a cloning run")
        where = f"{str(folder.config_path)!r}:"
        check_types(where, {name: value for name, value in given.items() if name not in PATHS}, TrainBC)
        for name in PATHS:
            if not isinstance(given[name], str | None):
                raise ValueError(f"{where} {name} is {given[name]!r}: it must be a path")
        paths = {name: None if given[name] is None else Path(given[name]) for name in PATHS}
        return TrainBC(self.out, **{**given, **paths})

    def run(self) -> None:
        """Train. Everything that can be refused is refused before the folder is made."""
        check_task(self.task, (SWEEP,))
        if self.data is None:
            raise ValueError("data is not given: it must be a dataset of robopolicy demos")
        from robopolicy.training.batches import split_by_episode
        from robopolicy.training.bc import MAY_CHANGE, BCConfig
        from robopolicy.training.checkpoint import RunFolder
        from robopolicy.training.datasets import cached, open_dataset
        from robopolicy.training.evaluate import check_workers

        config = BCConfig(**{f.name: getattr(self, f.name) for f in fields(BCConfig)})
        folder = RunFolder(self.out)
        before = folder.config() if self.resume else {}
        dataset = open_dataset(self.data, self.task)
        split = split_by_episode(dataset.episode, config.validation, config.seed)
        if config.batch > len(split.train):
            raise ValueError(f"batch is {config.batch}: there are {len(split.train)} frames to train on")
        policy = self._policy(dataset.image_size)
        environment = self._environment(dataset)
        check_workers(self.workers)
        if self.wandb is not None:
            from robopolicy.training.wandb_sink import check_installed

            check_installed(self.wandb)
        settings = self._settings(config, policy, environment, dataset.about)
        if self.resume:
            parts = ("task", "environment", "policy", "bc", "precision", "data")
            refuse_changes(before, settings, parts, MAY_CHANGE)
            with folder.held():  # nobody else is at work in it
                pass
        else:
            folder.check_new()
        where = dataset.cache if self.cache is None else self.cache
        with cached(dataset, where, lambda words: print(words, file=sys.stderr)) as cache:
            if not self.resume:
                folder.create(settings)
            record = self._train(config, policy, environment, cache, split, folder)
        if self.json:
            print(json_format.dumps(record))

    def _environment(self, dataset: Any) -> dict[str, Any]:
        """Settings of the environment of rollouts: those of the dataset, but for what is given."""
        from robopolicy.envs.sweep.bimanual_sweep import BimanualSweepConfig

        recorded = dataset.about["environment"]
        engine = recorded["engine"] if self.engine is None else self.engine
        settings = {"balls": recorded.get("balls"), "image_size": dataset.image_size}
        known = {name: value for name, value in settings.items() if value is not None}
        if self.episode_seconds is not None:
            known["episode_seconds"] = self.episode_seconds
        BimanualSweepConfig(**known)
        return {"engine": one_of("engine", engine, ENGINES), **known}

    def _policy(self, image: int) -> Any:
        iterations = self.iterations
        if iterations is None:
            iterations = LANGEVIN_STEPS if self.head == "langevin" else ROUNDS
        return cloned_config(
            self.attention,
            preset=self.preset,
            image=image,
            patch=self.patch,
            qk_norm=self.qk_norm,
            head=self.head,
            samples=self.samples,
            iterations=iterations,
        )

    def _settings(self, config: Any, policy: Any, environment: dict[str, Any], about: Any) -> dict[str, Any]:
        from robopolicy.flops import count_step
        from robopolicy.policies.catalogue import describe, untold

        settings = {
            "task": self.task,
            "environment": environment,
            "policy": describe(policy),
            "flops": count_step(untold(policy)).total,
            "bc": asdict(config),
            "precision": self._precision(),
            "data": {name: about[name] for name in ("environment", "recording", "renderer")},
            "command": {name: _plain(getattr(self, name)) for name in _kept()},
            "versions": versions(),
            "git": git_revision(),
        }
        plain: dict[str, Any] = json_format.loads(json_format.dumps(settings))
        return plain

    def _precision(self) -> str:
        """What products are computed in, by its name in numpy."""
        import jax

        one_of("precision", self.precision, ("auto", "float32", "bfloat16"))
        if self.precision != "auto":
            return self.precision
        return "float32" if jax.default_backend() == "cpu" else "bfloat16"

    def _train(
        self,
        config: Any,
        policy_config: Any,
        environment: dict[str, Any],
        cache: Any,
        split: Any,
        folder: Any,
    ) -> Any:
        from robopolicy.cli.progress import CloningProgress
        from robopolicy.envs.sweep import mirror
        from robopolicy.policies.base import parameter_count
        from robopolicy.policies.vision_performer import vision_performer
        from robopolicy.training.batches import Mirror, statistics
        from robopolicy.training.bc import train
        from robopolicy.training.descent import Keys
        from robopolicy.training.wandb_sink import WandbSink

        mirrored = Mirror(mirror.mirrored_images, mirror.mirrored_poses, mirror.mirrored_actions)
        known = statistics(cache, split.train, mirrored if config.mirror else None)
        learner = vision_performer(policy_config, known, self._precision())
        features = learner.policy.init_features(Keys.of(self.seed).features)
        with CloningProgress(config, f"{self.attention} on {self.task}") as progress:
            progress.say(
                f"{parameter_count(learner.policy)} parameters, {policy_config.tokens} tokens; "
                f"{len(split.train)} frames, and {len(split.validation)} set aside"
            )
            sinks = [] if self.wandb is None else [WandbSink(self.wandb, folder.path, folder.config())]
            with self._rollouts(config, policy_config, learner.policy, features, environment) as rollout:
                record = train(
                    config,
                    run=folder,
                    learner=learner,
                    features=features,
                    cache=cache,
                    split=split,
                    mirror=mirrored,
                    rollout=rollout,
                    resume=self.resume,
                    on_record=progress.record,
                    on_step=progress.step,
                    sinks=sinks,
                )
            progress.done(record)
            return record

    @contextmanager
    def _rollouts(
        self, config: Any, policy_config: Any, policy: Any, features: Any, environment: dict[str, Any]
    ) -> Iterator[Callable[..., Any] | None]:
        """What plays a policy in the simulator; None where the config wants no rollouts."""
        if not config.rollouts:
            yield None
            return
        from robopolicy.training.bc import Rollouts
        from robopolicy.training.evaluate import DEADLINE
        from robopolicy.training.worker import EnvironmentSpec

        task = TASKS[self.task]
        made = EnvironmentSpec(task.id, environment, self.task)
        seeds = range(ROLLOUTS_FROM, ROLLOUTS_FROM + config.rollouts)
        players = Players("local", self.workers, DEADLINE, None, 1)
        with closing(players.make([made], policy_config, policy, features)) as evaluator:

            def rollout(parameters: Any) -> Rollouts:
                played = evaluator.evaluate(parameters[None], seeds)
                outcomes = {o.name: float(played.outcome(o.name).mean()) for o in task.outcomes}
                return Rollouts(float(played.returns.mean()), outcomes)

            yield rollout


def _kept() -> list[str]:
    """Settings that a run keeps: not those of one part of it."""
    return [f.name for f in fields(TrainBC) if f.name not in ("out", "resume", "json", "workers", "wandb")]


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
