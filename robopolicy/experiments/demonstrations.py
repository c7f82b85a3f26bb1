"""Demonstrations of a task, recorded as a Minari dataset."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import gymnasium_id, make, task_class, with_defaults
from robopolicy.envs.task import Outcome, task_of
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.naming import one_of
from robopolicy.training.datasets import FORMAT
from robopolicy.training.recording import Recorded, RecordingConfig, check_recording, record
from robopolicy.training.worker import EnvironmentSpec

SUCCESS = Outcome("success", "success", "{:7.1%}", "{:.0%} success")  # score of a task without outcomes


def score_of(task: str) -> Outcome:
    """The outcome that scores a demonstration: the first one that the task declares."""
    outcomes = task_class(task).outcomes
    return outcomes[0] if outcomes else SUCCESS


def record_demonstrations(
    task: str,
    out: str | Path,
    *,
    episodes: int = 200,
    seed: int = 0,
    noise: float = 0.0,
    keep_failed: bool = False,
    engine: str | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_episode: Callable[[Recorded, int], None] = lambda episode, count: None,
) -> dict[str, Any]:
    """Record demonstrations of a task; a recording that was interrupted continues.

    Args:
      task: its name; the task has a demonstrator.
      out: folder of the dataset, whose name ends in a version, as in sweep-v0; it appears once complete.
      episodes: number of episodes to keep.
      seed: of the first episode.
      noise: standard deviation of noise on the actions.
      keep_failed: keep episodes without success; otherwise another seed replaces each.
      engine: physics engine; None for the default.
      settings: further settings of the environment.
      workers: processes; the dataset does not depend on their number. None: one for each core.
      on_begin: called once the input is checked.
      on_episode: called with each episode and the number of recorded episodes.

    Returns the dataset's path, numbers and mean score. Raises ValueError or FileExistsError, in one line, for
    bad input.
    """
    out, workers = Path(out), (os.cpu_count() or 1) if workers is None else workers
    contract = task_class(task)
    if contract.demonstrator is None:
        raise ValueError(f"task is {task!r}: it has no demonstrator")
    outcomes = tuple(outcome.name for outcome in contract.outcomes)
    config = RecordingConfig(episodes, seed, noise, keep_failed, outcomes)
    if engine is not None:
        one_of("engine", engine, ENGINES)
    engine, _ = with_defaults(task, engine, None, (settings or {}).get("renderer"))
    check_recording(out, workers)
    merged = {"engine": engine, **contract.demo_settings, **(settings or {})}
    merged = {name: value for name, value in merged.items() if value is not None}
    with closing(make(task, **merged)) as env:
        renderer = getattr(task_of(env), "renderer", None)
    environment = EnvironmentSpec(gymnasium_id(task), merged, task)
    about = {
        "task": task,
        "format": FORMAT,
        "environment": {"id": environment.id, **merged},
        "recording": asdict(config),
        "renderer": renderer if isinstance(renderer, str) else task,
        "versions": versions(),
        "git": git_revision(),
    }
    on_begin()
    recorded = record(config, environment, out, about, workers, on_episode)
    return {
        "dataset": str(out),
        "episodes": len(recorded),
        "steps": sum(episode.steps for episode in recorded),
        score_of(task).mean: sum(episode.score for episode in recorded) / len(recorded),
        "seeds": [episode.seed for episode in recorded],
    }
