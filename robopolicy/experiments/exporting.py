"""A policy as a bundle that a robot runs, checked against the JAX policy."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robopolicy.bundles.bundle import write_bundle
from robopolicy.envs.task import task_of
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.golden_vectors import record_golden
from robopolicy.experiments.output_files import new_folder
from robopolicy.experiments.players import check_match
from robopolicy.experiments.provenance import versions
from robopolicy.experiments.runs import find_run, load, trained_on
from robopolicy.experiments.stored_evaluations import FILE, is_of
from robopolicy.naming import check_graph_names, shown
from robopolicy.policies.catalogue import by_path
from robopolicy.policies.policy import Policy
from robopolicy.reading_json import read_json
from robopolicy.settings import check_count
from robopolicy.training.checkpoint import BEST, RunFolder
from robopolicy.training.metrics import read
from robopolicy.training.run_status import TRAINERS

OBSERVATIONS, MOST_OBSERVATIONS = 1000, 10**6


def export(
    policy: Policy | str | Path,
    env: str | gymnasium.Env[Any, Any] | Environment | None,
    out: str | Path,
    *,
    observations: int = OBSERVATIONS,
    on_begin: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Write a policy as a bundle for a robot: from raw readings to commands in physical units.

    Args:
      policy: a policy, or the name of a run or of a shipped policy.
      env: the task, which declares names, units and limits; None for the task of the policy's run.
      out: folder to write. It must not exist.
      observations: number of recorded observations, which check the bundle here and on the robot.
      on_begin: called once the input is checked.
      say: called with a line about each part that is left out: a stored evaluation of another checkpoint, C
        files of a graph that has no C source, and their hash for want of a compiler.

    The folder holds the policy as ONNX, StableHLO and C, a manifest, the observations with their commands,
    and a page to read. Returns the manifest. Raises FileExistsError if `out` exists, ValueError or
    FileNotFoundError for other bad input, RuntimeError if the recording fails, and ArithmeticError if ONNX
    or C differs from JAX.
    """
    out = new_folder("out", out)
    if out.exists():
        raise FileExistsError(f"out is {str(out)!r}: it exists, and nothing is overwritten")
    check_count("observations", observations, 1, MOST_OBSERVATIONS)
    trained = load(policy) if isinstance(policy, str | Path) else policy
    if not isinstance(trained, Policy):
        raise ValueError(f"policy is {policy!r}: it must be a Policy or the name of a run")
    if not np.isfinite(trained.parameters).all():
        raise ValueError(f"policy is {trained.name!r}: its parameters must be finite, and some are not")
    if why := _why_no_json(trained.run):
        raise ValueError(f"policy is {trained.name!r}: a manifest cannot hold its run's config.json: {why}")
    check_graph_names(trained.functions.observation)
    source = _source_of(trained)
    name = Path(trained.name).name
    if source is not None:
        folder, which = source
        name = folder.resolve().name + ("" if which == "last" else f"@{which}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"policy is {trained.name!r}: its name must be text that UTF-8 can encode"
        ) from error
    if env is None and not trained.run:
        raise ValueError(f"env is None: policy {trained.name!r} comes from no run, so give its task")
    environment = trained_on(trained) if env is None else Environment.of(env)
    environment = environment.showing(trained.functions.observation_shapes)
    with opened(environment, None) as instance:
        check_match(trained, task_of(instance), environment.task)
        description = task_of(instance).describe()
    about = {
        "name": name,
        "task": environment.task,
        "versions": versions(),
        "training": {"records": 0, "last": {}} if source is None else _training(*source),
        "evaluation": {} if source is None else _evaluation(source[0], trained.name, say),
    }
    on_begin()
    manifest: dict[str, Any] = write_bundle(
        out,
        trained,
        description,
        lambda units: record_golden(trained, environment.spec(), units, observations),
        say,
        about,
    )
    return manifest


def _source_of(policy: Policy) -> tuple[Path, str] | None:
    """What `find_run` returns for the run of a policy; None without one, or if run or policy have changed."""
    if not policy.run:
        return None
    try:
        stored = load(policy.name)
    except FileNotFoundError:
        return None
    features = by_path(policy.features)
    same = (
        (stored.config, stored.run) == (policy.config, policy.run)
        and np.array_equal(stored.parameters, policy.parameters)
        and all(np.array_equal(array, features[path]) for path, array in by_path(stored.features).items())
    )
    return find_run(policy.name) if same else None


def _training(folder: Path, which: str) -> dict[str, Any]:
    """The number of records in a run's log up to a checkpoint, and the last of them; none for `best`.

    Raises CheckpointError for a line that is no record.
    """
    run = RunFolder(folder)
    config = run.config()
    counter = next((trainer.counter for name, trainer in TRAINERS.items() if name in config), None)
    if which == BEST or counter is None:
        return {"records": 0, "last": {}}
    reached = run.generations()[-1] if which == "last" else int(which)
    records = [one for one in read(run.metrics_path, counter) if one[counter] <= reached]
    return {"records": len(records), "last": _finite(records[-1]) if records else {}}


def _finite(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """The entries without numbers that are not finite, which a manifest cannot hold."""
    return {name: value for name, value in numbers.items() if not _why_no_json(value)}


def _why_no_json(value: Any) -> str:
    """Why a manifest cannot hold `value`, or ""."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _evaluation(folder: Path, name: str, say: Callable[[str], None]) -> dict[str, Any]:
    """The numbers of the stored evaluation of a run's policy `name`, by engine.

    Raises ValueError, in one line, for a file that is damaged.
    """
    path = folder / FILE
    if not path.exists():
        return {}
    results, where = read_json(path), f"{str(path)!r} is no evaluation:"
    if not isinstance(results, dict) or not all(isinstance(result, dict) for result in results.values()):
        raise ValueError(f"{where} it must hold results by engine")
    for result in results.values():
        check_count(f"{where} episodes", result.get("episodes"), 1, 10**9)
        if not isinstance(result.get("preset"), str | None):
            raise ValueError(f"{where} preset is {shown(result['preset'])}: it must be text")
    return {
        engine: _finite({key: value for key, value in result.items() if not isinstance(value, list)})
        for engine, result in results.items()
        if is_of(result, name, say)
    }
