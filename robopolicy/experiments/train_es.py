"""Evolution strategies on a task: from a policy and an environment to a run's folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium

from robopolicy.envs.registry import check_name, task_class
from robopolicy.envs.task import Curriculum, check_ending, task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.flop_table import price
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.players import check_match
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.run_cards import write_card
from robopolicy.experiments.runs import identity, parameters_digest
from robopolicy.experiments.starting import RESUMED, Run, Start, check_same, checked_evaluator, of_type, plain
from robopolicy.experiments.trainings import TRAINED, trained_settings
from robopolicy.naming import check_graph_names, shown
from robopolicy.policies.catalogue import by_path, describe
from robopolicy.policies.policy import Policy
from robopolicy.runtime.policy import ONNX
from robopolicy.training.checkpoint import Arrays
from robopolicy.training.es import COUNTER, MAY_CHANGE, ESConfig, check_population, train
from robopolicy.training.loop import PROGRESS
from robopolicy.training.progress import Conditions, Progress

PARTS = ("task", "environment", "policy", "es")  # parts of config.json that a resumed run must have unchanged


@dataclass(frozen=True)
class Variants:
    """The environments of a run, as its config.json holds them; `presets` are in the curriculum's order."""

    engine: str | None
    presets: tuple[str, ...]
    episode_seconds: float | None
    others: Mapping[str, Any] = field(default_factory=dict)


def curriculum_of(task: str) -> Curriculum:
    """The curriculum that a task declares, or else one episode of its first preset."""
    contract = task_class(task)
    return contract.curriculum or Curriculum(contract.presets[:1], (), (1,))


def with_curriculum(config: ESConfig, task: str, presets: Sequence[str]) -> ESConfig:
    """`config` with `advance_at` and `episodes` of the task's curriculum where they are empty.

    Raises ValueError for a preset that occurs twice, and unless `advance_at` and `episodes` fit `presets`.
    """
    presets, curriculum = tuple(presets), curriculum_of(task)
    if len(set(presets)) < len(presets):
        raise ValueError(f"presets is {', '.join(presets)}: each may occur once")
    advance_at, episodes = config.advance_at, config.episodes
    usual = presets == curriculum.presets
    if not advance_at and usual:
        advance_at = curriculum.advance_at
    needed = max(len(presets) - 1, 0)
    if len(advance_at) != needed:
        raise ValueError(f"advance_at is {advance_at}: {len(presets)} presets need {needed} returns")
    if not episodes:
        episodes = curriculum.episodes if usual else (1,)
    if len(episodes) not in (1, len(presets)):
        raise ValueError(f"episodes is {episodes}: it must be one number, or one for each of the presets")
    return replace(config, advance_at=advance_at, episodes=episodes)


class Search(NamedTuple):
    """The checked arguments of a training, see `train_es`.

    Attributes:
      variants: its environments, in the order of its curriculum.
      config: its settings, those of the task's curriculum included.
      evaluator: how its episodes are played.
      settings: its config.json.
    """

    variants: list[Environment]
    config: ESConfig
    evaluator: EvaluatorConfig
    settings: dict[str, Any]


def checked_search(
    policy: Policy,
    env: str | gymnasium.Env[Any, Any] | Environment,
    config: ESConfig | None,
    presets: Sequence[str],
    evaluator: EvaluatorConfig,
) -> Search:
    """Check the arguments of `train_es` that describe a training, without its folder.

    Raises ValueError, in one line, for bad ones.
    """
    if not isinstance(policy, Policy):
        raise ValueError(f"policy is {policy!r}: it must be a Policy, such as robopolicy.new_policy returns")
    if not isinstance(presets, tuple | list) or not all(isinstance(preset, str) for preset in presets):
        raise ValueError(f"presets is {presets!r}: it must be a list of names")
    named = Environment(env) if isinstance(env, str) else env
    engine = None
    if isinstance(named, Environment):
        check_name(named.task, "env")
        engine = evaluator.engine_for(named)
    environment = Environment.of(named, engine)
    if not presets and isinstance(env, str):
        presets = curriculum_of(environment.task).presets
    presets = tuple(presets) or ((environment.preset,) if environment.preset else ())
    variants = [replace(environment, preset=preset) for preset in presets] or [environment]
    config = with_curriculum(of_type("config", config, ESConfig), environment.task, presets)
    evaluator.check_search(variants, config)
    for variant in variants:
        with opened(variant, policy.functions.observation_shapes) as instance:
            check_match(policy, task_of(instance), environment.task)
    check_population(config, policy.parameters.size)
    trained_on = asdict(
        Variants(environment.engine, presets, environment.episode_seconds, environment.others)
    )
    if not trained_on["others"]:
        del trained_on["others"]
    first = {}
    if policy.run:  # a trained one: which trainings are seeds of one policy depends on it
        first = {"init": {**identity(policy, policy.name), TRAINED: trained_settings(policy.run)}}
    settings = {
        "task": environment.task,
        "environment": plain("env", trained_on),
        "policy": describe(policy.config),
        "flops": price(policy.config),
        "es": asdict(config),
        "evaluator": evaluator.that_rounds_alike(variants),
        "versions": versions(),
        "git": git_revision(),
        **first,
    }
    return Search(variants, config, evaluator, plain("config", settings))


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
    """Train a policy by evolution strategies.

    Args:
      policy: the policy whose parameters the search starts from, such as `robopolicy.new_policy` returns.
      env: the task. Rollout workers make their own environments with its settings.
      config: settings of the search.
      out: folder of the run. It must not exist, unless `resume` continues its run.
      presets: variants of the task, in the order of a curriculum. Default: the preset of `env`; if `env` is a
        name, the presets of the task's curriculum.
      evaluator: how episodes are played. Default: by a pool of processes on this machine, or as in the run
        to resume.
      workers: its number of processes, without `evaluator`. The result does not depend on it.
      resume: continue the run in `out`, to the same bits as without the interruption. The other arguments
        are those that the run began with; only settings that end it may differ.
      resume_from: continue after this generation's checkpoint instead of the last one.
      wandb: project of Weights & Biases to log to as well.
      hooks: functions to call during the training.

    Returns the run: `run.policy()` is the trained policy. Raises ValueError, FileExistsError,
    FileNotFoundError or CheckpointError, in one line, before it makes a folder; then as `es.train` does.
    """
    start = Start.checked(out, resume, resume_from, wandb, hooks)
    before = start.folder.config() if resume else None
    evaluator = checked_evaluator(evaluator, workers, wandb, RESUMED, before)
    search = checked_search(policy, env, config, presets, evaluator)
    config, settings = search.config, search.settings
    if before is not None:
        _check_rounding(before, settings)
        _check_first(before, policy, start)
    features, over = by_path(policy.features), partial(_over, config)
    start.check_resume(settings, PARTS, MAY_CHANGE, COUNTER, config.generations, features, over)
    hooks, folder, functions = start.hooks, start.folder, policy.functions
    if not resume:
        check_graph_names(functions.observation)
    hooks.on_begin(f"{policy.parameters.size} parameters; compiling the policy")
    evaluator, why = evaluator.settled(search.variants, policy)
    if why:
        hooks.on_begin(f"onnxruntime runs the policy in the rollout workers: {why}")
    task = search.variants[-1].task
    with closing(evaluator.for_search(search.variants, policy, config)) as playing:
        if not resume:
            folder.create(settings | {"evaluator": evaluator.that_rounds_alike(search.variants)})
        record = train(
            config,
            run=folder,
            initial=policy.parameters,
            features=features,
            evaluator=playing,
            normalised={name: functions.observation_shapes[name][0] for name in functions.normalised},
            resume=resume,
            on_generation=hooks.on_record,
            on_episode=hooks.on_step,
            on_first=partial(check_ending, task, task_class(task).outcomes),
            sinks=start.sinks(),
        )
    write_card(folder.path, folder.config())
    return Run(folder.path, record)


def _over(config: ESConfig, arrays: Arrays) -> str:
    """The reason why the search in the `arrays` of a checkpoint is over, or ""."""
    try:
        progress = Progress.restored(arrays, PROGRESS)
    except KeyError:  # which `train` reports
        return ""
    return progress.over(Conditions(*(getattr(config, name) for name in Conditions._fields)))


def _check_first(before: Mapping[str, Any], policy: Policy, start: Start) -> None:
    """Raise ValueError if a run that began with trained weights would begin again with others."""
    first, saved = before.get("init"), start.folder.generations()
    if start.resume_from != 0 and any(saved):
        return
    if not isinstance(first, dict):  # random ones, or a run of an older version
        return
    if first.get("parameters_sha256") != parameters_digest(policy):
        raise ValueError(
            f"policy is {shown(policy.name)}: the run to resume begins again, and it began with the weights "
            f"of {shown(first.get('run'))}, so give that policy, by train_es in Python"
        )


def _check_rounding(before: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Raise ValueError that names the first setting with which a resumed run would round differently."""
    # Older runs do not name all of these.
    older = {n: ONNX if n == "policy_runtime" else value for n, value in settings["evaluator"].items()}
    check_same(RESUMED, ("evaluator",), {"evaluator": older | before.get("evaluator", {})}, settings)
