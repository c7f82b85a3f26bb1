"""Behaviour cloning: from a dataset of demonstrations to a run's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.registry import check_imported, check_name, task_class
from robopolicy.experiments.default_policies import vision_performer_config
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.flop_table import price
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.resuming import check_resume, refuse_changes
from robopolicy.experiments.train_es import Run
from robopolicy.naming import one_of
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import describe, restore
from robopolicy.policies.policy import Policy
from robopolicy.policies.vision_performer import Learner, vision_performer
from robopolicy.policies.vision_performer_config import VisionPerformerConfig
from robopolicy.training.batches import Mirror, split_by_episode, statistics
from robopolicy.training.bc import COUNTER, MAY_CHANGE, BCConfig, Rollouts, train
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.datasets import Dataset, open_dataset
from robopolicy.training.descent import Keys
from robopolicy.training.frames import Frames
from robopolicy.training.wandb_sink import WandbSink, check_installed

PARTS = ("task", "environment", "policy", "bc", "precision", "data")  # which a resume compares
PRECISIONS = ("auto", "float32", "bfloat16")
ROLLOUTS_FROM = 8000  # first seed of the episodes that are played in training; evaluations begin at 9000


def train_bc(
    policy: VisionPerformerConfig | str,
    data: str | Path,
    config: BCConfig | None = None,
    *,
    out: str | Path,
    env: str | gymnasium.Env[Any, Any] | Environment | None = None,
    preset: str = "small",
    settings: Mapping[str, Any] | None = None,
    precision: str = "auto",
    workers: int | None = None,
    resume: bool = False,
    resume_from: int | None = None,
    wandb: str | None = None,
    command: Mapping[str, Any] | None = None,
    hooks: Hooks | None = None,
) -> Run:
    """Clone the behaviour of demonstrations; returns the run.

    Args:
      policy: settings of a Vision-Performer for the dataset's images, vectors and actions; or the spec of a
        mechanism, for one whose size `preset` names.
      data: a Minari dataset.
      config: of the training; frames are mirrored only where the task declares its mirror image.
      out: the run's folder; it must not exist, or be that of a run to `resume`.
      env: where rollouts are played; by default what the demonstrations were recorded in.
      preset: tiny, small or base.
      settings: further settings of the Vision-Performer that `preset` names.
      precision: float32, bfloat16 (of products, while training), or auto: bfloat16 on an accelerator.
      workers: processes that play rollouts.
      resume: continue the run in `out`, to the same bits as if it had not stopped.
      resume_from: continue after this step's checkpoint.
      wandb: project of Weights & Biases to log to, too.
      command: what else the run's config.json is to hold.
      hooks: what to call while it trains.

    Raises ValueError, FileNotFoundError, FileExistsError or CheckpointError, in one line, before it makes a
    folder.
    """
    hooks = Hooks() if hooks is None else hooks
    config = BCConfig() if config is None else config
    folder = RunFolder(Path(out))
    if not resume:
        folder.check_new()
    before = dict(folder.config()) if resume else {}
    task = None if env is None else Environment.of(env).task
    dataset = open_dataset(Path(data), task)
    check_imported(dataset.task, f"task of the dataset {str(data)!r}")
    declared = task_class(dataset.task).mirror
    if declared is None:
        config = replace(config, mirror=False)
    split = split_by_episode(dataset.episode, config.validation, config.seed)
    if config.batch > len(split.train):
        raise ValueError(f"batch is {config.batch}: there are {len(split.train)} frames to train on")
    if isinstance(policy, str):
        policy = config_for(dataset, policy, preset, settings or {})
    _check_columns(policy, dataset)
    environment = rollout_environment(dataset, env)
    if config.rollouts or (env is not None and _given(env)):
        environment.make().close()
    evaluator = EvaluatorConfig() if workers is None else EvaluatorConfig(workers=workers)
    evaluator.check()
    if wandb is not None:
        check_installed(wandb)
    precision = _products(precision)
    kept = _settings(dataset, environment, policy, config, precision) | (
        {} if command is None else {"command": dict(command)}
    )
    if resume:
        if isinstance(before.get("policy"), dict):
            before["policy"] = _plain(describe(restore(before["policy"])))
        refuse_changes(before, kept, PARTS, MAY_CHANGE)
        check_resume(folder, COUNTER, config.steps, resume_from, hooks.on_resume)
    with Frames(dataset) as frames:
        if not resume:
            folder.create(kept)
        mirror = None if declared is None else Mirror(*declared)
        known = statistics(frames, split.train, mirror if config.mirror else None)
        learner = vision_performer(policy, known, precision)
        features = learner.policy.init_features(Keys.of(config.seed).features)
        hooks.on_begin(
            f"{parameter_count(learner.policy)} parameters, {policy.tokens} tokens; "
            f"{len(split.train)} frames, and {len(split.validation)} set aside"
        )
        with _rollouts(config, policy, learner, features, environment, evaluator) as rollout:
            record = train(
                config,
                run=folder,
                learner=learner,
                features=features,
                frames=frames,
                split=split,
                mirror=mirror,
                rollout=rollout,
                resume=resume,
                on_record=hooks.on_record,
                on_step=hooks.on_step,
                sinks=[] if wandb is None else [WandbSink(wandb, folder.path, folder.config())],
            )
    return Run(folder.path, record)


def config_for(
    dataset: Dataset, attention: str, preset: str, settings: Mapping[str, Any]
) -> VisionPerformerConfig:
    """The Vision-Performer for what a dataset's steps hold."""
    columns = dataset.columns
    images = {name: (shape[0], shape[1]) for name, shape in columns.images.items()}
    return vision_performer_config(
        attention, images, columns.vectors, columns.actions, preset=preset, **settings
    )


def rollout_environment(
    dataset: Dataset, env: str | gymnasium.Env[Any, Any] | Environment | None
) -> Environment:
    """Where a clone of a dataset is played: what it was recorded in, or the settings of `env` over that.

    Observations have the shapes of the dataset's.
    """
    recorded = {} if dataset.environment is None else dict(dataset.environment.settings)
    given = {} if env is None else _given(env)
    settings = {**recorded, **given}
    common = {name: settings.pop(name, None) for name in ("engine", "preset", "episode_seconds")}
    columns = dataset.columns
    shapes = {**columns.images, **{name: (size,) for name, size in columns.vectors.items()}}
    return Environment(check_name(dataset.task), **common, others=settings).showing(shapes)


def _given(env: str | gymnasium.Env[Any, Any] | Environment) -> dict[str, Any]:
    """The settings that are given, without those that a task would choose."""
    if isinstance(env, Environment):
        return env.settings
    return {} if isinstance(env, str) or env.spec is None else dict(env.spec.kwargs)


def _check_columns(policy: VisionPerformerConfig, dataset: Dataset) -> None:
    columns = dataset.columns
    wanted = (
        {image.name: (image.rows, image.columns, 3) for image in policy.images},
        {vector.name: vector.size for vector in policy.vectors},
        policy.actions,
    )
    found = ({n: tuple(s) for n, s in columns.images.items()}, dict(columns.vectors), columns.actions)
    if wanted != found:
        raise ValueError(
            f"data is {str(dataset.path)!r}: it has images {found[0]}, vectors {found[1]} and {found[2]} "
            f"actions; the policy has {wanted[0]}, {wanted[1]} and {wanted[2]}"
        )


def _products(precision: str) -> str:
    """What products are computed in, by its name in numpy."""
    one_of("precision", precision, PRECISIONS)
    if precision != "auto":
        return precision
    return "float32" if jax.default_backend() == "cpu" else "bfloat16"


def _settings(
    dataset: Dataset,
    environment: Environment,
    policy: VisionPerformerConfig,
    config: BCConfig,
    precision: str,
) -> dict[str, Any]:
    """The run's config.json."""
    return _plain(
        {
            "task": dataset.task,
            "environment": environment.settings,
            "policy": describe(policy),
            "flops": price(policy),
            "bc": asdict(config),
            "precision": precision,
            "data": {name: dataset.about.get(name) for name in ("environment", "recording", "renderer")},
            "versions": versions(),
            "git": git_revision(),
        }
    )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON reads it back."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain


@contextmanager
def _rollouts(
    config: BCConfig,
    policy: VisionPerformerConfig,
    learner: Learner,
    features: Any,
    environment: Environment,
    evaluator: EvaluatorConfig,
) -> Iterator[Callable[[NDArray[np.float32]], Rollouts] | None]:
    """What plays a policy in the simulator; None where the config wants no rollouts."""
    if not config.rollouts:
        yield None
        return
    outcomes = [outcome.name for outcome in task_class(environment.task).outcomes]
    seeds = range(ROLLOUTS_FROM, ROLLOUTS_FROM + config.rollouts)
    untrained = Policy(policy, np.zeros(parameter_count(learner.policy), np.float32), features, "clone")
    with closing(evaluator.make([environment.spec()], untrained, config.rollouts)) as playing:

        def rollout(parameters: NDArray[np.float32]) -> Rollouts:
            played = playing.evaluate(parameters[None], seeds)
            means = {name: float(played.outcome(name).mean()) for name in outcomes}
            return Rollouts(float(played.returns.mean()), means)

        yield rollout
