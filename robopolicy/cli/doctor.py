"""robopolicy doctor"""

from __future__ import annotations

from dataclasses import dataclass

from robopolicy.cli.options import Json
from robopolicy.doctor.findings import report


@dataclass(frozen=True)
class Doctor:
    """Check this machine: what works, what is missing, what is wrong, and how to repair it.

    It checks the versions of all packages, a step of each task on each engine, pictures, devices of JAX, a
    shipped policy, a video, memory and disks. Extras that are not installed are no faults. Exit code 1:
    something is wrong.

    For example:
        robopolicy doctor
    """

    json: Json = False

    def run(self) -> int:
        """Check and print; returns the exit code."""
        return report(self.json)
