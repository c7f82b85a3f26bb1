"""A policy as a bundle that a robot runs, checked against the JAX policy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium

from robopolicy.bundles.bundle import write_bundle
from robopolicy.envs.task import task_of
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.golden_vectors import record_golden
from robopolicy.experiments.provenance import versions
from robopolicy.experiments.runs import find_run, load, trained_on
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_count
from robopolicy.training.checkpoint import RunFolder

OBSERVATIONS, MOST_OBSERVATIONS = 1000, 10**6


def export(
    policy: Policy | str,
    env: str | gymnasium.Env[Any, Any] | Environment | None,
    out: str | Path,
    *,
    observations: int = OBSERVATIONS,
    on_begin: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Write a policy as a bundle, from raw readings to commands in physical units; returns its manifest.

    Args:
      policy: a policy, or the name of a run or of one that ships.
      env: the task, whose contract gives names, units and limits; None for the one of a run.
      out: the folder to write; it must not exist.
      observations: how many observations to record, to compare on, and to keep as golden vectors.
      on_begin: called once the input is checked.

    The folder holds the policy as ONNX and StableHLO, a manifest, the recorded observations with their
    commands, and a page to read. Raises FileExistsError where `out` exists, ValueError or FileNotFoundError
    for bad input, RuntimeError where the graphs do not compute what JAX computes.
    """
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"out is {str(out)!r}: it exists, and nothing is overwritten")
    check_count("observations", observations, 1, MOST_OBSERVATIONS)
    trained = load(policy) if isinstance(policy, str) else policy
    folder = _folder_of(trained)
    environment = trained_on(trained) if env is None else Environment.of(env)
    environment = environment.showing(trained.functions.observation_shapes)
    made = environment.make()
    description = task_of(made).describe()
    made.close()
    about = {
        "name": Path(trained.name).name if folder is None else folder.resolve().name,
        "task": environment.task,
        "versions": versions(),
        "training": {"records": 0, "last": {}} if folder is None else _training(folder),
        "evaluation": {} if folder is None else _evaluation(folder),
    }
    on_begin()
    manifest: dict[str, Any] = write_bundle(
        out,
        trained,
        description,
        lambda units: record_golden(trained, environment.spec(), units, observations),
        about,
    )
    return manifest


def _folder_of(policy: Policy) -> Path | None:
    """The folder of the run that a policy was loaded from; None if it was not, or the run has changed."""
    if not policy.run:
        return None
    try:
        folder = find_run(policy.name)[0]
    except FileNotFoundError:
        return None
    return folder if RunFolder(folder).config() == policy.run else None


def _training(folder: Path) -> dict[str, Any]:
    """The last line of a run's log, and how many there are."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        last = json.loads(lines[-1]) if lines else {}
    except (ValueError, RecursionError):  # a run that was killed may leave half a line
        last = {}
    return {"records": len(lines), "last": last}


def _evaluation(folder: Path) -> dict[str, Any]:
    """What a run's evaluation tells by engine, without its lists."""
    path = folder / "evaluation.json"
    if not path.exists():
        return {}
    try:
        told = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no evaluation: {error}") from error
    if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
        raise ValueError(f"{str(path)!r} is no evaluation: it must hold results by engine")
    return {
        engine: {name: value for name, value in one.items() if not isinstance(value, list)}
        for engine, one in told.items()
    }
