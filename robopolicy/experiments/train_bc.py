"""Behaviour cloning: from a dataset of demonstrations to a run's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.contract import is_colour
from robopolicy.envs.physics import ENGINES, RENDERERS, is_installed
from robopolicy.envs.registry import RECORDED, TASKS, check_imported, check_name, task_class
from robopolicy.envs.task import Task, task_of
from robopolicy.experiments.default_policies import vision_performer_config
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.flop_table import price
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.opened_datasets import opened_datasets
from robopolicy.experiments.output_files import as_path
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.run_cards import write_card
from robopolicy.experiments.starting import Run, Start, checked_evaluator, of_type, plain
from robopolicy.experiments.warm_start import first_policy
from robopolicy.naming import check_graph_names, one_of, shown
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import describe
from robopolicy.policies.policy import Policy
from robopolicy.policies.vision_performer import Learner, vision_performer
from robopolicy.policies.vision_performer_config import VisionPerformerConfig
from robopolicy.training.batches import AHEAD, Mirror, Split, moving, split_by_episode, statistics
from robopolicy.training.bc import COUNTER, MAY_CHANGE, BCConfig, Rollouts, check_batch, train
from robopolicy.training.capacity import check_fits
from robopolicy.training.datasets import Dataset, check_alike
from robopolicy.training.descent import Keys
from robopolicy.training.frames import Frames
from robopolicy.training.rollout import HELD_OUT_FROM

PARTS = ("task", "environment", "policy", "bc", "precision", "data")  # that a resumed run must have unchanged
PRECISIONS = ("auto", "float32", "bfloat16")


def train_bc(
    policy: VisionPerformerConfig | str,
    data: str | Path | Sequence[str | Path],
    config: BCConfig | None = None,
    *,
    out: str | Path,
    env: str | gymnasium.Env[Any, Any] | Environment | None = None,
    cameras: Sequence[str] = (),
    preset: str = "small",
    settings: Mapping[str, Any] | None = None,
    init: str | Path | None = None,
    precision: str = "auto",
    workers: int | None = None,
    resume: bool = False,
    resume_from: int | None = None,
    wandb: str | None = None,
    command: Mapping[str, Any] | None = None,
    hooks: Hooks | None = None,
) -> Run:
    """Clone the behaviour of demonstrations.

    Args:
      policy: spec of a mechanism, for a Vision-Performer of the size `preset`; or the settings of a
        Vision-Performer for the dataset's images, vectors and actions.
      data: folder of a dataset of Minari or LeRobot, or of several with the same task, images, vectors and
        actions, such as the rounds of DAgger.
      config: settings of the training. Frames are mirrored only if the task declares its mirror image.
      out: folder of the run. It must not exist, unless `resume` continues its run.
      env: environment of the rollouts. Default: that of the demonstrations.
      cameras: of a LeRobot dataset, those that the policy reads; () for the only one, or all of our own.
      preset: size of the policy: tiny, small or base.
      settings: further settings of the Vision-Performer, by name, if `policy` is a spec.
      init: run or shipped policy, of the same settings, whose weights the training begins with. Its random
        features and its statistics of data stay, too. If its head is another one, the encoder's weights are
        taken, and the head's are drawn. May end in @best or @40. Default: drawn weights.
      precision: precision of products in training: float32, bfloat16, or auto (bfloat16 on an accelerator).
      workers: number of processes that play rollouts.
      resume: continue the run in `out`; on the same number of cores, to the same bits as without the stop.
        Other frames in `data` are refused; of the images, 64 are compared.
      resume_from: continue after this step's checkpoint instead of the last one.
      wandb: project of Weights & Biases to log to as well.
      command: further contents of the run's config.json, by name.
      hooks: functions to call during the training.

    Returns the run: `run.policy()` is the trained policy. Raises ValueError, FileExistsError,
    FileNotFoundError or CheckpointError, in one line, before it makes a folder; then as `bc.train` does.
    """
    config = of_type("config", config, BCConfig)
    if config.rollout_every and not config.rollouts and not resume:  # older runs may have it
        raise ValueError(f"rollout_every is {config.rollout_every}: it needs rollouts, the episodes of each")
    for name, value in (("settings", settings), ("command", command)):
        if not isinstance(value, Mapping | None):
            raise ValueError(f"{name} is {value!r}: it must be settings by name")
    if not isinstance(policy, str | VisionPerformerConfig):
        raise ValueError(f"policy is {shown(policy)}: it must be a spec or a VisionPerformerConfig")
    if settings and not isinstance(policy, str):
        raise ValueError(f"settings is {settings!r}: the policy has its own, so give one of them")
    one_of("precision", precision, PRECISIONS)
    extra = {} if command is None else {"command": plain("command", command)}
    several = data if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    paths = [as_path("data", path) for path in several]
    if not paths:
        raise ValueError("data is (): it must be one dataset or more")
    start = Start.checked(out, resume, resume_from, wandb, hooks)
    task = None if env is None else Environment.of(env).task
    with opened_datasets(paths, task, cameras) as datasets:
        check_alike(datasets)
        dataset = datasets[0]
        check_imported(dataset.task, f"task of the dataset {str(dataset.path)!r}")
        declared = task_class(dataset.task).mirror
        if declared is None:
            config = replace(config, mirror=False)
        split = _split(datasets, config)
        columns = dataset.columns
        if not columns.images:
            raise ValueError(
                f"data is {str(dataset.path)!r}: it has no colour images (depth and grey ones are not read), "
                "and the policy needs one"
            )
        if isinstance(policy, str):
            images = {name: (shape[0], shape[1]) for name, shape in columns.images.items()}
            policy = vision_performer_config(
                policy, images, columns.vectors, columns.actions, **{"preset": preset, **(settings or {})}
            )
        _check_columns(policy, dataset)
        if not resume:
            check_graph_names([*(i.name for i in policy.images), *(v.name for v in policy.vectors)])
        _check_reach(policy, datasets, config.batch)
        first = None if init is None and not resume else first_policy(init, policy, start, config.seed)
        environment = rollout_environment(datasets, env)
        if (
            config.rollouts
            or isinstance(env, gymnasium.Env)
            or (isinstance(env, Environment) and env.settings)
            # Our tasks show whatever their own recordings have.
            or (dataset.task != RECORDED and (dataset.task not in TASKS or not dataset.about))
        ):
            with closing(environment.make()) as made:  # raises for bad settings
                _check_shown(dataset, task_of(made))
        evaluator = checked_evaluator(None, workers, wandb)
        if precision == "auto":
            precision = "float32" if jax.default_backend() == "cpu" else "bfloat16"
        with Frames(*datasets) as frames:
            contents = {
                "task": dataset.task,
                # A recording is no environment without its dataset.
                "environment": environment.settings
                | ({"others": dict(environment.others)} if dataset.task == RECORDED else {}),
                "policy": describe(policy),
                "flops": price(policy),
                "bc": asdict(config),
                "precision": precision,
                "data": _origins(datasets),
                "frames_sha256": frames.digest(),
                "versions": versions(),
                "git": git_revision(),
            }
            # Older runs do not have it.
            begun_on = start.folder.config().get("frames_sha256") if resume else None
            if begun_on not in (None, contents["frames_sha256"]):
                given = [str(path) for path in paths]
                raise ValueError(f"data is {given}: its frames are not those of the run")
            contents = plain("env", contents) | ({} if first is None else {"init": first.origin}) | extra
            start.check_resume(contents, PARTS, MAY_CHANGE, COUNTER, config.steps)
            hooks, folder = start.hooks, start.folder
            split = moving(frames, split, config.least_action)
            check_batch(config, split)
            mirror = None if declared is None else Mirror(*declared)
            if first is None:
                scales = statistics(frames, split.train, mirror if config.mirror else None, policy.chunk)
            else:
                scales = first.policy.features["statistics"]
            learner = vision_performer(policy, scales, precision)
            if first is None:
                features = learner.policy.init_features(Keys.of(config.seed).features)
            else:
                features = first.policy.features
            hooks.on_begin(
                f"{parameter_count(learner.policy)} parameters, {policy.tokens} tokens; "
                f"{len(split.train)} frames, and {len(split.validation)} set aside"
                + ("" if first is None else first.seen(seed=config.seed, validation=config.validation))
                + ("" if first is None else first.words)
            )
            with _rollouts(config, policy, learner, features, environment, evaluator) as rollout:
                if not resume:
                    folder.create(contents)
                record = train(
                    config,
                    run=folder,
                    learner=learner,
                    features=features,
                    frames=frames,
                    split=split,
                    mirror=mirror,
                    parameters=None if first is None else first.policy.parameters,
                    rollout=rollout,
                    resume=resume,
                    on_record=hooks.on_record,
                    on_step=hooks.on_step,
                    sinks=start.sinks(),
                )
        write_card(folder.path, folder.config())
        return Run(folder.path, record)


def _split(datasets: Sequence[Dataset], config: BCConfig) -> Split:
    """The frames of all datasets: each sets the same episodes aside whether or not there are others."""
    parts, first = [], 0
    for dataset in datasets:
        part = split_by_episode(dataset.episode, config.validation, config.seed)
        parts.append(Split(*(indices + first for indices in part)))
        first += len(dataset.episode)
    return Split(*(np.concatenate(indices) for indices in zip(*parts, strict=True)))


def _origins(datasets: Sequence[Dataset]) -> dict[str, Any]:
    """What the datasets' metadata say of their origin: of one alone as it is, of several by their number."""
    names = ("environment", "recording", "renderer", "policy")
    origins = [{name: dataset.about.get(name) for name in names} for dataset in datasets]
    if len(origins) == 1:
        return origins[0]
    return {f"dataset {number}": origin for number, origin in enumerate(origins)}


def rollout_environment(
    datasets: Sequence[Dataset], env: str | gymnasium.Env[Any, Any] | Environment | None
) -> Environment:
    """The environment of the first demonstrations, or of all recordings, changed by the settings of `env`.

    Its observations have the shapes of the dataset's. An engine that is not installed is replaced by the
    default one, and so is its renderer.
    """
    dataset = datasets[0]
    stored = [{} if d.environment is None else dict(d.environment.settings) for d in datasets]
    settings = stored[0]
    if dataset.task == RECORDED and len(datasets) > 1:
        settings |= {"dataset": [one.get("dataset") for one in stored], "cameras": [*dataset.columns.images]}
    engine = settings.get("engine")
    if engine in ENGINES and not is_installed(engine):
        del settings["engine"]
        if RENDERERS.get(settings.get("renderer", "")) == engine:
            del settings["renderer"]
    if isinstance(env, Environment):
        settings |= env.settings
    elif isinstance(env, gymnasium.Env):
        settings |= Environment.of(env).settings
    common = {name: settings.pop(name, None) for name in ("engine", "preset", "episode_seconds")}
    columns = dataset.columns
    shapes = {**columns.images, **{name: (size,) for name, size in columns.vectors.items()}}
    return Environment(check_name(dataset.task), **common, others=settings).showing(shapes)


def _check_shown(dataset: Dataset, task: Task) -> None:
    """Raise ValueError for an environment that shows or takes something else than the dataset."""
    columns = dataset.columns
    wanted = {**columns.images, **{name: (size,) for name, size in columns.vectors.items()}}
    shown: Any = task.observation_space
    spaces = {n: s for n, s in shown.spaces.items() if is_colour(s) or n in columns.vectors}
    for part, one, two in (
        *((name, shape, spaces[name].shape if name in spaces else None) for name, shape in wanted.items()),
        ("actions", (columns.actions,), task.action_space.shape),
    ):
        if two is None or tuple(one) != tuple(two):
            has = "no such observation" if two is None else f"{part} {list(two)}"
            raise ValueError(
                f"data is {str(dataset.path)!r}: it has {part} {list(one)}, and {dataset.task} has {has}"
            )


def _check_columns(policy: VisionPerformerConfig, dataset: Dataset) -> None:
    columns = dataset.columns
    wanted = (
        {image.name: (image.rows, image.columns, 3) for image in policy.images},
        {vector.name: vector.size for vector in policy.vectors},
        policy.actions,
    )
    actual = ({n: tuple(s) for n, s in columns.images.items()}, dict(columns.vectors), columns.actions)
    if wanted != actual:
        raise ValueError(
            f"data is {str(dataset.path)!r}: it has images {actual[0]}, vectors {actual[1]} and {actual[2]} "
            f"actions; the policy has {wanted[0]}, {wanted[1]} and {wanted[2]}"
        )


def _check_reach(policy: VisionPerformerConfig, datasets: Sequence[Dataset], batch: int) -> None:
    """Raise ValueError for a history or a chunk beyond every episode, or for one that memory cannot hold."""
    longest = max(count for dataset in datasets for count in dataset.steps)
    for name in ("history", "chunk"):
        count = getattr(policy, name)
        if count > longest:
            raise ValueError(
                f"{name} is {count}: it must be at most {longest}, the steps of the longest episode in data"
            )
    if policy.history > 1:
        frame = sum(3 * image.rows * image.columns for image in policy.images)
        needed = (AHEAD + 1) * batch * policy.history * frame
        check_fits(f"history is {policy.history}", needed, f"reading ahead in batches of {batch}")


@contextmanager
def _rollouts(
    config: BCConfig,
    policy: VisionPerformerConfig,
    learner: Learner,
    features: Any,
    environment: Environment,
    evaluator: EvaluatorConfig,
) -> Iterator[Callable[[NDArray[np.float32]], Rollouts] | None]:
    """A function from parameters to the results of rollouts; None without rollouts in the config."""
    if not config.rollouts:
        yield None
        return
    seeds = range(HELD_OUT_FROM, HELD_OUT_FROM + config.rollouts)
    untrained = Policy(policy, np.zeros(parameter_count(learner.policy), np.float32), features, "clone")
    with closing(evaluator.make([environment.spec()], untrained, config.rollouts)) as playing:

        def rollout(parameters: NDArray[np.float32]) -> Rollouts:
            played = playing.evaluate(parameters[None], seeds)
            return Rollouts(float(played.returns.mean()), played.outcome_means())

        yield rollout
