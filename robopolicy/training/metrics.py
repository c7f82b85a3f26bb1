"""The log of a run: one JSON line per record, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from robopolicy.reading_json import parse_json_lines
from robopolicy.training.checkpoint import RESUME, CheckpointError
from robopolicy.writing import clear_about_full_disks, write_atomically

Record = dict[str, Any]

# Names, in records, of the measures that compare runs.
HELD_OUT_RETURN, ROLLOUT_RETURN, VALIDATION_LOSS = "held_out/return", "rollout/return", "validation/loss"

# True in a record whose evaluation is that of a run's end, not of its settings: such a policy is never @best.
UNPLANNED = "unplanned"


class Sink(Protocol):
    """A further log: `add` receives each record with its generation or step, `close` ends the run."""

    def add(self, record: Record, number: int) -> None: ...
    def close(self) -> None: ...


def read(path: Path, counter: str = "generation") -> list[Record]:
    """The records of a log, numbered by `counter`, without the unfinished last line of a killed run.

    Raises CheckpointError for a line that is not a record.
    """
    if not path.is_file():
        return []
    records = parse_json_lines(path.read_bytes(), repr(str(path)), error=CheckpointError)
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict) or not isinstance(record.get(counter), int):
            raise CheckpointError(f"line {number} of {str(path)!r} is no record of a {counter}")
    return records


def cut(path: Path, counter: str, after: int) -> None:
    """Drop the records beyond `after` from a log."""
    records = [record for record in read(path, counter) if record[counter] <= after]
    write_atomically(path, "".join(json.dumps(record) + "\n" for record in records))


class MetricsLog:
    """Appends records to `metrics.jsonl` and to a TensorBoard file beside it."""

    def __init__(
        self, folder: Path, after: int, sinks: Sequence[Sink] = (), counter: str = "generation"
    ) -> None:
        """Continue after record `after`; drop the records of a killed run beyond its checkpoint."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._sinks, self._counter = sinks, counter
        self._path = folder / "metrics.jsonl"
        board = folder / "tensorboard"
        with clear_about_full_disks(folder, RESUME):
            cut(self._path, counter, after)
            board.mkdir(exist_ok=True)
            # Not SummaryWriter: its thread dies of a full disk, and its queue then waits for ever.
            self._board = EventsWriter(str(board / "events"))
            start = SessionLog(status=SessionLog.START)
            self._board.write_event(Event(wall_time=time.time(), step=after + 1, session_log=start))

    def add(self, record: Record) -> None:
        """Log one record; the line is on the disk when this returns."""
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        number = record[self._counter]
        with clear_about_full_disks(self._path.parent, RESUME):
            with self._path.open("a") as file:
                file.write(json.dumps(record) + "\n")
                file.flush()
                os.fsync(file.fileno())
            for name, value in record.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    summary = scalar(name, value)
                    self._board.write_event(Event(wall_time=time.time(), step=number, summary=summary))
            self._board.flush()
        for sink in self._sinks:
            sink.add(record, number)

    def close(self) -> None:
        """Close the files."""
        with clear_about_full_disks(self._path.parent, RESUME):
            self._board.close()
        for sink in self._sinks:
            sink.close()
