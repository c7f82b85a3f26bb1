"""The log of a run: one JSON line a generation, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from robopolicy.training.checkpoint import CheckpointError, clear_about_full_disks, write_atomically

Record = dict[str, Any]


class Sink(Protocol):
    """Where else records go; `generation` is in each."""

    def add(self, record: Record) -> None:
        """Take one generation."""

    def close(self) -> None:
        """End the run."""


def read(path: Path) -> list[Record]:
    """The records of a log; an unfinished last line, as a killed run leaves it, is left out.

    Raises CheckpointError for a line that is no record.
    """
    if not path.is_file():
        return []
    lines = path.read_text().split("\n")[:-1]
    return [_record(path, number, line) for number, line in enumerate(lines, 1)]


def _record(path: Path, number: int, line: str) -> Record:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise CheckpointError(f"line {number} of {str(path)!r} is not JSON: {error}") from error
    if not isinstance(record, dict) or not isinstance(record.get("generation"), int):
        raise CheckpointError(f"line {number} of {str(path)!r} is no record of a generation")
    return record


class MetricsLog:
    """Appends records to `metrics.jsonl` and to a TensorBoard file beside it."""

    def __init__(self, folder: Path, after: int, sinks: Sequence[Sink] = ()) -> None:
        """Continue after generation `after`: what a killed run logged beyond its checkpoint is dropped."""
        from tensorboardX import SummaryWriter

        self._sinks = sinks
        self._path = folder / "metrics.jsonl"
        kept = [record for record in read(self._path) if record["generation"] <= after]
        write_atomically(self._path, "".join(json.dumps(record) + "\n" for record in kept))
        with clear_about_full_disks(folder):
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=after + 1)

    def add(self, record: Record) -> None:
        """Log one generation; the line is on the disk when this returns."""
        with clear_about_full_disks(self._path.parent):
            with self._path.open("a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            for name, value in record.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, record["generation"])
            self._board.flush()
        for sink in self._sinks:
            sink.add(record)

    def close(self) -> None:
        """Close the files."""
        self._board.close()
        for sink in self._sinks:
            sink.close()
