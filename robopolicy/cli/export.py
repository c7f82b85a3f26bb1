"""robopolicy export"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.tasks import STONES, Rollouts, make

OBSERVATIONS = 1000


@dataclass(frozen=True)
class Export:
    """Write a run's policy as ONNX, checked against the JAX policy on recorded observations.

    Example: robopolicy export runs/first --out bundle

    The folder holds policy.onnx, manifest.json and golden.npz: the observations that it was checked on, with
    their actions.
    """

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN")]]
    """A run folder, or the name of a shipped policy."""
    out: Path
    """Folder to write; it must not exist."""
    observations: int = OBSERVATIONS
    """How many recorded observations to check on."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Export, record, compare, write."""
        if self.out.exists():
            raise FileExistsError(f"out is {str(self.out)!r}: it exists, and nothing is overwritten")
        if self.observations < 1:
            raise ValueError(f"observations is {self.observations}: it must be 1 or more")
        from robopolicy.cli.runs import load_run
        from robopolicy.export.bundle import write_bundle

        trained = load_run(self.policy)
        if trained.run.get("task") != STONES:
            raise ValueError(
                f"run is {self.policy!r}: it was trained on {trained.run.get('task')!r}, and only policies "
                f"of {STONES} can be exported"
            )
        rollouts = Rollouts(trained.run["environment"]["engine"])
        env = make(rollouts, "paper")
        try:
            manifest = write_bundle(self.out, trained, env, self.observations)
        finally:
            env.close()
        parity = manifest["parity"]
        result = {"out": str(self.out), **parity}
        if self.json:
            print(json_format.dumps(result))
        else:
            print(_words(result))


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['out']}: policy.onnx, manifest.json, golden.npz\n"
        f"ONNX against JAX on {result['observations']} recorded observations: largest difference "
        f"{result['action_difference']:.1e} in actions, {result['scores_difference']:.1e} in foothold scores"
    )
