"""The status of a run, read from its files, without JAX.

A trainer holds a lock on its run's config while it is at work, and leaves the words of an error that ends it
in `failure.txt`. A run without either is finished, if its log and its last checkpoint say so, or was stopped:
by Ctrl-C or SIGTERM, by being killed, or with the machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.settings import check_types
from robopolicy.training.checkpoint import CheckpointError, RunFolder
from robopolicy.training.metrics import (
    HELD_OUT_RETURN,
    ROLLOUT_RETURN,
    VALIDATION_LOSS,
    Record,
    read,
)
from robopolicy.training.progress import Curriculum, Ends, Progress

STARTING, RUNNING, FINISHED, STOPPED, FAILED = "starting", "running", "finished", "stopped", "failed"
DAMAGED = "damaged"
LONGEST_FAILURE = 2000  # characters
LARGEST = sys.float_info.max
TO_START = 120.0  # s, in which a trainer compiles, before it holds its run


class Trainer(NamedTuple):
    """How runs of a trainer are read.

    Attributes:
      counter: what its records count.
      total: the setting that says how many there are to be.
      measures: what its policies are judged by, with max or min; the first one that was logged counts.
    """

    counter: str
    total: str
    measures: tuple[tuple[str, Any], ...]


class Schedule(NamedTuple):
    """When a search goes on to its next environment, and when it is evaluated; see `es.ESConfig`."""

    advance_at: tuple[float, ...]
    stage_limit: int
    evaluate_every: int


TRAINERS = {
    "es": Trainer("generation", "generations", ((HELD_OUT_RETURN, max),)),
    "bc": Trainer("step", "steps", ((ROLLOUT_RETURN, max), (VALIDATION_LOSS, min))),
}


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    Attributes:
      trainer: name in `TRAINERS`.
      status: starting, running, finished, stopped, failed, or damaged where its checkpoints are gone.
      why: what there is to say about it, in one line, or "".
      done, total: generations or steps.
      measure, best: name and value of what it is judged by; None where nothing was measured yet.
      written: when it last wrote, in seconds since 1970.
      records: its log.
    """

    trainer: str
    status: str
    why: str
    done: int
    total: int
    measure: str | None
    best: float | None
    written: float
    records: list[Record]


def trainer_of(config: Mapping[str, Any]) -> str:
    """The name of the trainer that a run's config is of. Raises CheckpointError where it is of none."""
    for name in TRAINERS:
        if isinstance(config.get(name), dict):
            return name
    raise CheckpointError(f"its config.json describes no run: it has no settings of {' or '.join(TRAINERS)}")


def status(folder: RunFolder) -> RunStatus:
    """The status of a run. Raises CheckpointError, in one line, where it is damaged."""
    config = folder.config()
    name = trainer_of(config)
    trainer, settings = TRAINERS[name], config[name]
    total = settings.get(trainer.total)
    if type(total) is not int or total < 1:
        raise CheckpointError(f"{trainer.total} in its config.json is {total!r}: it must be 1 or more")
    records = read(folder.metrics_path, trainer.counter)
    saved = folder.generations()
    if saved:
        check_index(folder.path / "checkpoints" / str(saved[-1]))
    done = max([record[trainer.counter] for record in records[-1:]] + saved[-1:], default=0)
    measure, best = _best(trainer, records)
    files = (folder.config_path, folder.metrics_path, folder.failure_path)
    written = max(path.stat().st_mtime for path in files if path.exists())
    state, why = _state(folder, name, settings, records, done, total, time.time() - written)
    # A search that is over before its first generation has nothing to save.
    if state == FINISHED and done > max(saved, default=0):
        if saved:
            state, why = STOPPED, f"its last checkpoint is that of {trainer.counter} {saved[-1]}"
        else:
            state, why = DAMAGED, "it has come to its end, and its checkpoints are gone"
    elif state == STOPPED and not saved:
        why = why or "it has no checkpoint: --resume begins anew"
    return RunStatus(name, state, why, done, total, measure, best, written, records)


def _state(
    folder: RunFolder,
    name: str,
    settings: Mapping[str, Any],
    records: Sequence[Record],
    done: int,
    total: int,
    age: float,
) -> tuple[str, str]:
    if folder.is_held():
        return RUNNING, ""
    if folder.failure_path.is_file():
        with folder.failure_path.open(errors="replace") as file:
            return FAILED, file.read(LONGEST_FAILURE).strip()
    if done >= total:
        return FINISHED, ""
    if name == "es" and (over := _ended_by(settings, records)):
        return FINISHED, over
    if records or done:
        return STOPPED, ""
    if age < TO_START:
        return STARTING, "nothing is logged yet"
    return STOPPED, "before anything was logged"


def _best(trainer: Trainer, records: Sequence[Record]) -> tuple[str | None, float | None]:
    for measure, best in trainer.measures:
        values = [record[measure] for record in records if _is_number(record.get(measure))]
        if values:
            return measure, float(best(values))
    return None, None


def _ended_by(settings: Mapping[str, Any], records: Sequence[Record]) -> str:
    """Why a search was over before its last generation, which `es.train` knows from the same numbers."""
    ends, schedule = _part(Ends, settings), _part(Schedule, settings)
    if schedule.evaluate_every < 1:
        raise CheckpointError(
            f"evaluate_every in its config.json is {schedule.evaluate_every}: it must be 1 or more"
        )
    curriculum, progress = Curriculum(tuple(schedule.advance_at), schedule.stage_limit), Progress()
    for record in records:
        number, last = record["generation"], progress.stage == len(curriculum.advance_at)
        if number:
            progress = progress.played(
                curriculum, _number(record, "return_mean"), _number(record, "episodes")
            )
            spent = _number(record, "wall_seconds" if "wall_seconds" in record else "seconds")
            progress = progress._replace(seconds=progress.seconds + spent)
        if number % schedule.evaluate_every == 0 and HELD_OUT_RETURN in record:
            progress = progress.evaluated(_number(record, HELD_OUT_RETURN), counts=last and number > 0)
    return progress.over(ends)


def _part(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Those of a search's settings that `kind`, a NamedTuple, holds."""
    for name in kind._fields:
        if name not in settings:
            raise CheckpointError(f"es in its config.json lacks {name}")
    check_types("es in its config.json:", settings, kind)
    return kind(**{name: settings[name] for name in kind._fields})


def _number(record: Record, name: str) -> Any:
    """A number of a record, which may be none that is finite."""
    value = record.get(name)
    if type(value) is float or _is_number(value):
        return value
    raise CheckpointError(f"{name} of generation {record['generation']} is {value!r}: it must be a number")


def check_index(checkpoint: Path) -> None:
    """Raise CheckpointError where a checkpoint was not completed; its arrays are not read."""
    try:
        index = json.loads((checkpoint / "index" / "metadata").read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"checkpoints/{checkpoint.name} cannot be read: {error}") from error
    arrays = index.get("arrays") if isinstance(index, dict) else None
    if not isinstance(arrays, list) or not (checkpoint / "arrays" / "_METADATA").is_file():
        raise CheckpointError(f"checkpoints/{checkpoint.name} is damaged: its arrays are not there")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
