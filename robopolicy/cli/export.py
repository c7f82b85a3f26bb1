"""robopolicy export"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.provenance import versions
from robopolicy.cli.robots import described
from robopolicy.cli.tasks import TASKS, make_task
from robopolicy.envs.physics import ENGINES, default_engine

OBSERVATIONS = 1000


@dataclass(frozen=True)
class Export:
    """Write a run's policy as a bundle that a robot runs, checked against the JAX policy.

    For example:
        robopolicy export runs/first --out bundle

    The folder holds the policy as ONNX and StableHLO, from raw readings to commands in physical units, a
    manifest of all that a robot has to know, recorded observations with their commands, and a page to read.
    """

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN")]]
    """A run folder, or the name of a shipped policy."""
    out: Path
    """Folder to write; it must not exist."""
    observations: int = OBSERVATIONS
    """How many recorded observations to check on, and to keep as golden vectors."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Convert, record, compare, write."""
        if self.out.exists():
            raise FileExistsError(f"out is {str(self.out)!r}: it exists, and nothing is overwritten")
        if self.observations < 1:
            raise ValueError(f"observations is {self.observations}: it must be 1 or more")
        from robopolicy.cli.golden import record_golden
        from robopolicy.cli.players import observed
        from robopolicy.cli.runs import find_run, load_run, task_of
        from robopolicy.export.bundle import write_bundle
        from robopolicy.training.worker import EnvironmentSpec

        trained = load_run(self.policy)
        task = task_of(self.policy, trained.run)
        engine = _engine(trained.run)
        settings = observed(task, trained)
        env = make_task(task, engine, "paper", None, **settings)
        description = described(task, env)
        env.close()
        environment = EnvironmentSpec(TASKS[task].id, {"engine": engine, **settings}, task)
        folder = find_run(self.policy)[0]
        about = {
            "name": folder.resolve().name,
            "task": task,
            "versions": versions(),
            "training": _training(folder),
            "evaluation": _evaluation(folder),
        }
        print(f"converting, and recording {self.observations} observations ...", file=sys.stderr)
        manifest = write_bundle(
            self.out,
            trained,
            description,
            lambda units: record_golden(trained, environment, units, self.observations),
            about,
        )
        result = {
            "out": str(self.out),
            **manifest["parity"],
            "flops": manifest["flops"]["total"],
            "control_period": manifest["control_period"],
        }
        print(json_format.dumps(result) if self.json else _words(result))


def _engine(run: dict[str, Any]) -> str:
    """The engine that a run was trained on, or the default where it tells none that there is."""
    told = run.get("environment")
    engine = told.get("engine") if isinstance(told, dict) else None
    return engine if engine in ENGINES else default_engine()


def _training(folder: Path) -> dict[str, Any]:
    """The last line of a run's log, and how many there are."""
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    try:
        last = json_format.loads(lines[-1]) if lines else {}
    except ValueError:  # a run that was killed may leave half a line
        last = {}
    return {"records": len(lines), "last": last}


def _evaluation(folder: Path) -> dict[str, Any]:
    """What a run's evaluation tells by engine, without its lists."""
    path = folder / "evaluation.json"
    if not path.exists():
        return {}
    try:
        told = json_format.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is no evaluation: {error}") from error
    if not isinstance(told, dict) or not all(isinstance(one, dict) for one in told.values()):
        raise ValueError(f"{str(path)!r} is no evaluation: it must hold results by engine")
    return {
        engine: {name: value for name, value in one.items() if not isinstance(value, list)}
        for engine, one in told.items()
    }


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['out']}: a bundle of {result['flops']:,} FLOPs a step, a step every "
        f"{1e3 * result['control_period']:g} ms; README.md says how to run it\n"
        f"ONNX against JAX on {result['observations']} recorded observations: largest difference "
        f"{result['command_difference']:.1e} in commands, {result['scores_difference']:.1e} in scores\n"
        f"next: robopolicy verify {result['out']}"
    )
