"""robopolicy verify"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

CALLS = 10_000  # the runtime's, which is not imported for --help


@dataclass(frozen=True)
class Verify:
    """Check that a bundle does on this machine what it did where it was made, and in time.

    For example:
        robopolicy verify bundle

    It plays the golden vectors and times calls on one thread. Where the runtime alone is installed, as on a
    robot, the same command does the same. Exit code 1 says that outputs differ or that it is too slow.
    """

    bundle: tyro.conf.Positional[Path]
    """The folder that export wrote."""
    calls: int = CALLS
    """How many calls to time."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> int:
        """Verify; the exit code."""
        from robopolicy.runtime.verify import verify

        verdict = verify(self.bundle, self.calls, lambda part: print(f"{part} ...", file=sys.stderr))
        print(json_format.dumps(verdict.as_dict()) if self.json else verdict.as_text())
        return 0 if verdict.same and verdict.in_time else 1
