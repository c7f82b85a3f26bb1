"""robopolicy export"""

from __future__ import annotations

import json as json_format
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robopolicy.cli.options import Env, Json
from robopolicy.experiments.exporting import OBSERVATIONS, export


@dataclass(frozen=True)
class Export:
    """Write a run's policy as a bundle for a robot, checked against the JAX policy.

    For example:
        robopolicy export runs/first --out bundle

    The folder holds the policy as ONNX, StableHLO and C, from raw readings to commands in physical units, a
    manifest with everything that a robot needs, recorded observations with their commands, and a page to
    read.
    """

    policy: Positional[Annotated[str, arg(metavar="RUN")]]
    """A run folder, or the name of a shipped policy."""
    out: Path
    """Folder to write. It must not exist."""
    env: Env = None
    observations: int = OBSERVATIONS
    """Recorded observations to compare on, which become the golden vectors of the bundle."""
    json: Json = False

    def run(self) -> None:
        """Convert, record, compare, write."""
        begun = f"converting, and recording {self.observations} observations ..."
        manifest = export(
            self.policy,
            None,
            self.out,
            observations=self.observations,
            on_begin=lambda: print(begun, file=sys.stderr),
            say=lambda line: print(line, file=sys.stderr),
        )
        result = {
            "out": str(self.out),
            **manifest["parity"],
            "flops": manifest["flops"]["total"],
            "control_period": manifest["control_period"],
        }
        print(json_format.dumps(result) if self.json else _words(result))


def _words(result: dict[str, Any]) -> str:
    return (
        f"{result['out']}: a bundle of {result['flops']:,} FLOPs a step, a step every "
        f"{1e3 * result['control_period']:g} ms; its README.md has the commands to run it\n"
        f"ONNX against JAX on {result['observations']} recorded observations: largest difference "
        f"{result['command_difference']:.1e} in commands, {result['scores_difference']:.1e} in scores\n"
        f"next: robopolicy verify {shlex.quote(result['out'])}"
    )
