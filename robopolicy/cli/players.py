"""What plays an episode for a command: a run, or a baseline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robopolicy.cli.runs import BASELINES, Trained, load_run
from robopolicy.cli.tasks import SWEEP, TASKS
from robopolicy.training.rollout import Act


def player(name: str, task: str) -> tuple[Callable[[Any, int], Act], Trained | None]:
    """A function (environment, seed) -> act for RUN|oracle|blind|random, and the run if it is one.

    Raises ValueError for the run of another task.
    """
    if name in BASELINES:
        return lambda env, seed: baseline(name, env, seed), None
    trained = load_run(name)
    if trained.run.get("task") != task:
        raise ValueError(f"task is {task!r}: {name!r} was trained on {trained.run.get('task')!r}")
    from robopolicy.export.onnx import export_policy
    from robopolicy.runtime.graph import OnnxPolicy

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "policy.onnx"
        export_policy(trained.config, trained.features, path, trained.parameters)
        act = OnnxPolicy(path)
    return lambda env, seed: act, trained


def observed(task: str, trained: Trained | None) -> dict[str, Any]:
    """Settings of an environment that shows a player what it looks at, and nothing besides."""
    if trained is None:
        return TASKS[task].unseen
    return {"image_size": trained.config.image} if task == SWEEP else {}


def baseline(name: str, env: Any, seed: int) -> Act:
    """The oracle asks the environment where the stones are; the others look at nothing."""
    from robopolicy.policies import baselines

    if name == "oracle":
        return lambda observation: env.unwrapped.oracle_action()
    (size,) = env.action_space.shape
    return baselines.blind(size) if name == "blind" else baselines.random(size, seed)
