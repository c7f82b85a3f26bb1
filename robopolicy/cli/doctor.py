"""robopolicy doctor"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Doctor:
    """Say what works on this machine, what is missing, what is wrong, and what mends it.

    Versions of everything that is used, a step of both tasks on both engines, pictures, devices of JAX, a
    shipped policy, a video, memory and disks. Extras that are not installed are told, and are not wrong. Exit
    code 1 says that something is wrong.

    For example:
        robopolicy doctor
    """

    json: Annotated[bool, tyro.conf.arg(help="Print the findings as JSON on stdout.")] = False

    def run(self) -> int:
        """Look and print; the exit code."""
        from robopolicy.doctor.findings import report

        return report(self.json)
