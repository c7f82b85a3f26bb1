"""robopolicy verify"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from robopolicy.cli.options import Json
from robopolicy.runtime.policy import ONNX
from robopolicy.runtime.verify import CALLS, verify


@dataclass(frozen=True)
class Verify:
    """Check that a bundle computes here what it computed where it was made, and in time.

    For example:
        robopolicy verify bundle
        robopolicy verify bundle --runtime c

    It plays the golden vectors and times calls on one thread. A robot that has only the runtime has the same
    command. Exit code 1: outputs differ, or calls are too slow.
    """

    bundle: Positional[Path]
    """Folder that robopolicy export wrote."""
    calls: int = CALLS
    """Calls to time."""
    runtime: str = ONNX
    """What runs the policy: onnx, or c, which compiles the bundle's policy.c and compares it with onnx."""
    json: Json = False

    def run(self) -> int:
        """Verify; returns the exit code."""
        verdict = verify(
            self.bundle, self.calls, lambda part: print(f"{part} ...", file=sys.stderr), self.runtime
        )
        print(json_format.dumps(verdict.as_dict()) if self.json else verdict.as_text())
        return 0 if verdict.same and verdict.in_time else 1
