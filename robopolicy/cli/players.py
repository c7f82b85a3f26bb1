"""What plays an episode for a command: a run, or a baseline."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from robopolicy.cli.runs import BASELINES, Trained, load_run
from robopolicy.cli.tasks import ACTION_SIZE
from robopolicy.training.rollout import Act


def player(name: str) -> tuple[Callable[[Any, int], Act], Trained | None]:
    """A function (environment, seed) -> act for RUN|oracle|blind|random, and the run if it is one."""
    if name in BASELINES:
        return lambda env, seed: baseline(name, env, seed), None
    trained = load_run(name)
    from robopolicy.export.onnx import export_policy
    from robopolicy.runtime.policy import OnnxPolicy

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "policy.onnx"
        export_policy(trained.config, trained.features, path, trained.parameters)
        act = OnnxPolicy(path)
    return lambda env, seed: act, trained


def baseline(name: str, env: Any, seed: int) -> Act:
    """The oracle asks the environment where the stones are; the others look at nothing."""
    from robopolicy.policies import baselines

    if name == "oracle":
        return lambda observation: env.unwrapped.oracle_action()
    return baselines.blind(ACTION_SIZE) if name == "blind" else baselines.random(ACTION_SIZE, seed)
