"""Evolution strategies on a task: from a policy and an environment to a run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from robopolicy.envs.registry import task_class
from robopolicy.envs.task import Curriculum
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.flop_table import price
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.resuming import check_resume, refuse_changes
from robopolicy.experiments.runs import load
from robopolicy.policies.catalogue import by_path, describe, restore
from robopolicy.policies.policy import Policy
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import COUNTER, MAY_CHANGE, ESConfig, check_population, most_episodes, train
from robopolicy.training.metrics import Record
from robopolicy.training.wandb_sink import WandbSink, check_installed

PARTS = ("task", "environment", "policy", "es")  # of a run's config, which a resume compares


class Run(NamedTuple):
    """A run that has been trained: its folder, and its last record, None where nothing was left to do."""

    folder: Path
    record: Record | None

    def policy(self, which: str = "last") -> Policy:
        """Its policy: `last`, `best` on held-out seeds, or that of a checkpoint's number."""
        return load(self.folder, which)


@dataclass(frozen=True)
class Variants:
    """Where a run trains, as its config.json holds it: `presets` are in the order of the curriculum."""

    engine: str | None
    presets: tuple[str, ...]
    episode_seconds: float | None
    others: Mapping[str, Any] = field(default_factory=dict)


def curriculum_of(task: str) -> Curriculum:
    """What evolution strategies train a task on: its own curriculum, or an episode of its first preset."""
    contract = task_class(task)
    return contract.curriculum or Curriculum(contract.presets[:1], (), (1,))


def with_curriculum(config: ESConfig, task: str, presets: Sequence[str]) -> ESConfig:
    """`config` with `advance_at` and `episodes` of the task's curriculum where they are empty.

    Raises ValueError for a preset that occurs twice, and unless `advance_at` fits `presets`.
    """
    presets, curriculum = tuple(presets), curriculum_of(task)
    if len(set(presets)) < len(presets):
        raise ValueError(f"presets is {', '.join(presets)}: each may occur once")
    advance_at, episodes = config.advance_at, config.episodes
    usual = presets == curriculum.presets
    if not advance_at and usual:
        advance_at = curriculum.advance_at
    if len(advance_at) != max(len(presets) - 1, 0):
        needed = len(presets) - 1
        raise ValueError(f"advance_at is {advance_at}: {len(presets)} presets need {needed} returns")
    if not episodes:
        episodes = curriculum.episodes if usual else (1,)
    if len(episodes) not in (1, len(presets)):
        raise ValueError(f"episodes is {episodes}: it must be one number, or one for each of the presets")
    return replace(config, advance_at=advance_at, episodes=episodes)


def train_es(
    policy: Policy,
    env: str | gymnasium.Env[Any, Any] | Environment,
    config: ESConfig | None = None,
    *,
    out: str | Path,
    presets: Sequence[str] = (),
    evaluator: EvaluatorConfig | None = None,
    workers: int | None = None,
    resume: bool = False,
    resume_from: int | None = None,
    wandb: str | None = None,
    hooks: Hooks | None = None,
) -> Run:
    """Train a policy by evolution strategies; returns the run.

    Args:
      policy: whose parameters the search starts from.
      env: the task; every rollout worker makes environments like it.
      config: of the search.
      out: the run's folder; it must not exist, or be that of a run to `resume`.
      presets: variants of the task in the order of a curriculum. Default: the preset of `env`, or those of
        the task's curriculum if `env` is a name.
      evaluator: where episodes are played; a pool of processes on this machine by default.
      workers: rollout processes of that pool, in place of `evaluator`; the result does not depend on it.
      resume: continue the run in `out`, to the same bits as if it had not stopped.
      resume_from: continue after this generation's checkpoint.
      wandb: project of Weights & Biases to log to, too.
      hooks: what to call while it trains.

    Raises ValueError, FileExistsError or CheckpointError, in one line, before it makes a folder.
    """
    hooks = Hooks() if hooks is None else hooks
    environment = Environment.of(env)
    if isinstance(presets, str):
        raise ValueError(f"presets is {presets!r}: it must be a list of names")
    if not isinstance(policy, Policy):
        raise ValueError(f"policy is {policy!r}: it must be a Policy, such as robopolicy.new_policy makes")
    if not presets and isinstance(env, str):
        presets = curriculum_of(environment.task).presets
    presets = tuple(presets) or ((environment.preset,) if environment.preset else ())
    variants = [replace(environment, preset=preset) for preset in presets] or [environment]
    config = with_curriculum(ESConfig() if config is None else config, environment.task, presets)
    folder = RunFolder(Path(out))
    before = dict(folder.config()) if resume else {}
    if not resume:
        folder.check_new()
    for variant in variants:
        variant.make().close()
    if evaluator is None:
        evaluator = EvaluatorConfig() if workers is None else EvaluatorConfig(workers=workers)
    evaluator.check()
    if wandb is not None:
        check_installed(wandb)
    check_population(config, policy.parameters.size)
    settings = _settings(policy, environment, presets, config)
    if resume:
        if isinstance(before.get("policy"), dict):
            before["policy"] = json.loads(json.dumps(describe(restore(before["policy"]))))
        refuse_changes(before, settings, PARTS, MAY_CHANGE)
        check_resume(folder, COUNTER, config.generations, resume_from, hooks.on_resume)
    hooks.on_begin(f"{policy.parameters.size} parameters; compiling the policy for the rollout workers")
    functions = policy.functions
    specs = [variant.showing(functions.observation_shapes).spec() for variant in variants]
    with closing(evaluator.make(specs, policy, most_episodes(config))) as playing:
        if not resume:
            folder.create(settings)
        record = train(
            config,
            run=folder,
            initial=policy.parameters,
            features=by_path(policy.features),
            evaluator=playing,
            normalised={name: functions.observation_shapes[name][0] for name in functions.normalised},
            resume=resume,
            on_generation=hooks.on_record,
            on_episode=hooks.on_step,
            sinks=[] if wandb is None else [WandbSink(wandb, folder.path, folder.config())],
        )
    return Run(folder.path, record)


def _settings(
    policy: Policy, environment: Environment, presets: Sequence[str], config: ESConfig
) -> dict[str, Any]:
    """The run's config.json."""
    trained_on = asdict(
        Variants(environment.engine, tuple(presets), environment.episode_seconds, environment.others)
    )
    if not trained_on["others"]:
        del trained_on["others"]
    settings = {
        "task": environment.task,
        "environment": trained_on,
        "policy": describe(policy.config),
        "flops": price(policy.config),
        "es": asdict(config),
        "versions": versions(),
        "git": git_revision(),
    }
    try:
        plain: dict[str, Any] = json.loads(json.dumps(settings))
    except TypeError as error:
        raise ValueError(f"env has settings that JSON cannot hold: {error}") from error
    return plain
