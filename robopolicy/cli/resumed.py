"""The command line that continues a run."""

from __future__ import annotations

import shlex
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robopolicy.cli.train_bc import TrainBC
    from robopolicy.cli.train_es import TrainES

# Fields that the command to go on with does not repeat: it has them already, or no resume may change them.
SAID = ("out", "resume", "resume_from", "preset", "advance_at", "episodes")


def command_to_resume(command: TrainES | TrainBC, name: str) -> str:
    """The command line that goes on with the run of `command`, with what differs from how the run began."""
    words = ["robopolicy", "train", name, "--resume", "--out", str(command.out)]
    begun = command.begun()
    for field in fields(command):
        value = getattr(command, field.name)
        if field.name in SAID or value is None or value == getattr(begun, field.name):
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if value is not True:
            words.append(str(value))
    return shlex.join(words)
