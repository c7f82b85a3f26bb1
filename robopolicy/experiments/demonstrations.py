"""Demonstrations of a task, and a policy's episodes that a demonstrator labels, as Minari datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from robopolicy.envs.contract import is_colour
from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import TASKS, check_name, gymnasium_id, make, task_class, with_defaults
from robopolicy.envs.task import Outcome, Task, task_of
from robopolicy.experiments import runs
from robopolicy.experiments.output_files import new_folder
from robopolicy.experiments.players import check_match, player
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.naming import one_of
from robopolicy.policies.policy import Policy
from robopolicy.training.capacity import cores
from robopolicy.training.datasets import FORMAT, check_dataset_name
from robopolicy.training.demonstration import Recorded, RecordingConfig
from robopolicy.training.recording import check_recording, record
from robopolicy.training.worker import EnvironmentSpec

FORMATS = ("minari", "lerobot")
SUCCESS = Outcome("success", "success", "{:7.1%}", "{:.0%} success")  # score of a task without outcomes


def score_of(task: str) -> Outcome:
    """The outcome that scores a demonstration: the first one that the task declares."""
    outcomes = task_class(task).outcomes
    return outcomes[0] if outcomes else SUCCESS


def record_demonstrations(
    task: str,
    out: str | Path,
    *,
    run: str | Path | None = None,
    beta: float = 0.0,
    episodes: int = 200,
    seed: int = 0,
    noise: float = 0.0,
    keep_failed: bool = False,
    format: str = FORMATS[0],
    engine: str | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_episode: Callable[[Recorded, int], None] = lambda episode, count: None,
) -> dict[str, Any]:
    """Record demonstrations of a task; a recording that was interrupted continues.

    With a run, they are a round of DAgger (Ross, Gordon and Bagnell, AISTATS 2011): the policy of the run
    acts, and the demonstrator labels every step with its own action. An episode is kept whatever its end,
    unless the policy comes to a state for which the demonstrator has no action.

    Args:
      task: its name; the task has a demonstrator.
      out: folder of the dataset, which appears once complete. The name of a Minari dataset ends in a
        version, as in sweep-v0.
      run: a run of the task, or a shipped policy; its settings of the environment are the defaults.
      beta: probability that the demonstrator acts in a step, and not the policy of `run`.
      episodes: number of episodes to keep.
      seed: of the first episode.
      noise: standard deviation of noise on the demonstrator's actions.
      keep_failed: keep demonstrations without success; otherwise another seed replaces each.
      format: minari or lerobot, of the dataset.
      engine: physics engine; None for the default.
      settings: further settings of the environment.
      workers: processes; the dataset does not depend on their number. None: one for each core.
      on_begin: called once the input is checked.
      on_episode: called with each episode and the number of recorded episodes.

    Returns the dataset's path, numbers, mean score, and the seeds that were kept out. Raises ValueError,
    FileNotFoundError or FileExistsError, in one line, for bad input, and as `recording.record`.
    """
    out, workers = new_folder("out", out), cores() if workers is None else workers
    if not out.name:
        raise ValueError(f"out is {str(out)!r}: it must be the name of a new folder")
    one_of("format", format, FORMATS)
    if not isinstance(settings, Mapping | None):
        raise ValueError(f"settings is {settings!r}: it must be settings by name")
    contract = task_class(task)
    if contract.demonstrator is None:
        able = ", ".join(name for name in TASKS if task_class(name).demonstrator)
        raise ValueError(
            f"task is {task!r}, which has no demonstrator: it must be {able}, or a task of yours that has one"
        )
    outcomes = tuple(outcome.name for outcome in contract.outcomes)
    if run is None and beta:
        raise ValueError(f"beta is {beta}: it needs a run, whose policy acts in the other steps")
    if run is not None and keep_failed:
        raise ValueError("keep_failed is True: episodes of a run are kept whatever their end")
    if run is not None and noise and not beta:
        raise ValueError(f"noise is {noise}: with beta 0 the demonstrator, which it disturbs, never acts")
    config = RecordingConfig(
        episodes, seed, noise, keep_failed or run is not None, outcomes, 1.0 if run is None else beta
    )
    if engine is not None:
        one_of("engine", engine, ENGINES)
    policy = None if run is None else runs.load(run)
    merged = {**contract.demo_settings, **(settings or {})}
    if policy is not None:
        shown = contract.settings_for(policy.functions.observation_shapes)
        merged = {**contract.demo_settings, **_environment(policy, task), **shown, **(settings or {})}
        engine = engine or runs.engine_of(policy.run)
    engine, _ = with_defaults(task, engine, None, merged.get("renderer"))
    finish: Callable[[Path], Path] | None = None
    if format == "lerobot":
        from robopolicy.experiments.conversion import as_lerobot  # pyarrow is an optional package

        finish = as_lerobot
    else:
        check_dataset_name(out)
    check_recording(out, workers)
    merged = {"engine": engine, **{n: value for n, value in merged.items() if n != "engine"}}
    merged = {name: value for name, value in merged.items() if value is not None}
    with closing(make(task, **merged)) as env:
        renderer = getattr(task_of(env), "renderer", None)
        check_match(policy, task_of(env), task)
        if format == "lerobot":
            _check_columns(task_of(env), task)
        shared = _described(task_of(env))
    environment = EnvironmentSpec(gymnasium_id(task), merged, task)
    about = {
        "task": task,
        "format": FORMAT,
        "environment": {"id": environment.id, **merged},
        "recording": asdict(config),
        "renderer": renderer if isinstance(renderer, str) else task,
        **({} if policy is None else {"policy": runs.identity(policy, str(run))}),
        **shared,
        "versions": versions(),
        "git": git_revision(),
    }
    on_begin()
    graph = None if policy is None else player(policy, task).graph
    recorded = record(config, environment, out, about, workers, on_episode, graph and graph(), finish)
    return {
        "dataset": str(out),
        "episodes": len(recorded.episodes),
        "steps": sum(episode.steps for episode in recorded.episodes),
        score_of(task).mean: sum(episode.score for episode in recorded.episodes) / len(recorded.episodes),
        "seeds": [episode.seed for episode in recorded.episodes],
        "kept_out": [episode.seed for episode in recorded.kept_out],
    }


def _check_columns(task: Task, name: str) -> None:
    """Raise ValueError for an observation that a LeRobot dataset of this library cannot hold."""
    spaces: Any = task.observation_space
    for observation, space in spaces.items():
        if not is_colour(space) and (len(space.shape) != 1 or not np.issubdtype(space.dtype, np.floating)):
            raise ValueError(
                f"format is 'lerobot': {name} has {observation!r} of {space.dtype}{list(space.shape)}, and "
                "colour images (uint8) and vectors of floats alone can be stored"
            )


def _described(task: Task) -> dict[str, Any]:
    """What a recording stores of its task for other formats: rate, robot, and names of numbers."""
    vectors = {name: [q.name for q in quantities] for name, quantities in task.vectors.items()}
    return {
        "rate": float(task.rate),
        "robot": task.robot()["name"],
        "names": {**vectors, "action": [q.name for q in task.actions]},
    }


def _environment(policy: Policy, task: str) -> dict[str, Any]:
    """The settings of the environment that a policy's run has trained or played on, without its engine.

    Raises ValueError for a run of another task.
    """
    trained = runs.task_of(policy.name, policy.run)
    if trained != check_name(task):
        raise ValueError(f"task is {task!r}: {policy.name!r} was trained on {trained!r}")
    environment = policy.run.get("environment")
    settings = (environment if isinstance(environment, dict) else {}) | runs.others_in(policy.run)
    own = {n: v for n, v in settings.items() if n not in ("engine", "presets", "others")}
    return own | {"preset": runs.preset_of(policy.run)}
