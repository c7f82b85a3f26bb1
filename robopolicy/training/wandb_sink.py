"""Records of a run for Weights & Biases."""

from __future__ import annotations

import importlib.util
import secrets
from pathlib import Path
from typing import Any

from robopolicy.training.metrics import Record
from robopolicy.writing import write_atomically


def check_installed(project: str) -> None:
    """Raise ValueError if wandb is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise ValueError(f"wandb is {project!r}: it needs Weights & Biases: pip install wandb")


class WandbSink:
    """A run in a wandb project, named after its folder; a resumed run continues in it."""

    def __init__(self, project: str, folder: Path, config: dict[str, Any]) -> None:
        """Begin. Raises ValueError if wandb is not installed or refuses access."""
        check_installed(project)
        import wandb

        # Folders may have equal names, so wandb identifies the run by a number, stored in its folder.
        number = folder / "wandb_id"
        if not number.is_file():
            write_atomically(number, secrets.token_hex(8))
        try:
            self._run = wandb.init(
                project=project,
                name=folder.resolve().name,
                id=number.read_text(),
                resume="allow",
                dir=str(folder),
                config=config,
            )
        except wandb.errors.Error as error:
            raise ValueError(f"wandb is {project!r}: {error}") from error

    def add(self, record: Record, number: int) -> None:
        """See `Sink`."""
        self._run.log(record, step=number)

    def close(self) -> None:
        """See `Sink`."""
        self._run.finish()
