"""The status of a run, read from its files, without JAX.

A trainer locks its run while it works, and writes an error that ends it to `failure.txt`. A run without
either is finished if its log and last checkpoint say so, and starting for two minutes before it logs. Else it
was stopped: by Ctrl-C or SIGTERM, by a kill, or with the machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.reading_json import read_json
from robopolicy.settings import check_types, is_finite
from robopolicy.training.checkpoint import CheckpointError, RunFolder
from robopolicy.training.metrics import (
    HELD_OUT_RETURN,
    ROLLOUT_RETURN,
    UNPLANNED,
    VALIDATION_LOSS,
    Record,
    read,
)
from robopolicy.training.progress import Conditions, Progress
from robopolicy.training.resume import latest_limits

STARTING, RUNNING, FINISHED, STOPPED, FAILED = "starting", "running", "finished", "stopped", "failed"
DAMAGED = "damaged"
NO_CHECKPOINT = "it has no checkpoint: --resume begins anew"
LONGEST_FAILURE = 2000  # characters
TO_START = 120.0  # s, for compilation, before a trainer locks its run


class Trainer(NamedTuple):
    """A trainer, as its runs describe it.

    Attributes:
      counter: name of the number in its records.
      total: name of the setting with the last number.
      measures: quality measures of its policies, with max or min; the first one in the log counts.
    """

    counter: str
    total: str
    measures: tuple[tuple[str, Any], ...]


TRAINERS = {
    "es": Trainer("generation", "generations", ((HELD_OUT_RETURN, max),)),
    "bc": Trainer("step", "steps", ((ROLLOUT_RETURN, max), (VALIDATION_LOSS, min))),
}


@dataclass(frozen=True)
class RunStatus:
    """The status of a run.

    Attributes:
      trainer: name in `TRAINERS`.
      status: starting, running, finished, stopped, failed, or damaged if its checkpoints are gone.
      why: the reason, in one line, or "".
      done, total: generations or steps; `total` is that of the last resume.
      end: the last generation or step by the settings that the run began with, or where they ended it early.
      measure, best: name and best value of its quality measure, that of the policy @best; None without one in
        the log.
      written: time of the last change of its files, in seconds since 1970.
      records: its log.
    """

    trainer: str
    status: str
    why: str
    done: int
    total: int
    end: int
    measure: str | None
    best: float | None
    written: float
    records: list[Record]


def status(folder: RunFolder) -> RunStatus:
    """The status of a run. Raises CheckpointError, in one line, if it is damaged."""
    config = folder.config()
    name = next((name for name in TRAINERS if isinstance(config.get(name), dict)), None)
    if name is None:
        trainers = " or ".join(TRAINERS)
        raise CheckpointError(f"its config.json describes no run: it has no settings of {trainers}")
    trainer, settings = TRAINERS[name], config[name]
    end = settings.get(trainer.total)
    if type(end) is not int or end < 1:
        raise CheckpointError(f"{trainer.total} in its config.json is {end!r}: it must be 1 or more")
    latest = settings | latest_limits(folder)
    total = latest[trainer.total]
    records = read(folder.metrics_path, trainer.counter)
    saved = folder.generations()
    if saved:
        _check_index(folder.checkpoints / str(saved[-1]))
    done = max([record[trainer.counter] for record in records[-1:]] + saved[-1:], default=0)
    measure, best = _best(trainer, records)
    files = (folder.config_path, folder.metrics_path, folder.failure_path)
    written = max(path.stat().st_mtime for path in files if path.exists())
    is_running = folder.is_locked()
    over = first = ""
    # The oldest runs have no conditions; one of these is over if it is complete.
    may_be_over = not is_running and (done < end or set(Conditions._fields) <= settings.keys())
    if name == "es" and may_be_over and not folder.failure_path.is_file():
        first, end = _ended_by(settings, [one for one in records if one[trainer.counter] <= end], end)
        over = first if latest == settings else _ended_by(latest, records, total)[0]
    if is_running:
        state, why = RUNNING, ""
    elif folder.failure_path.is_file():
        with folder.failure_path.open(errors="replace") as file:
            state, why = FAILED, file.read(LONGEST_FAILURE).strip()
    elif done >= total or over:
        went_on = first and done > end
        state, why = FINISHED, f"{first} at {trainer.counter} {end}, and it went on" if went_on else over
        if saved and done > saved[-1]:
            state, why = STOPPED, f"its last checkpoint is that of {trainer.counter} {saved[-1]}"
        elif not saved:
            lost = "it has come to its end, and its checkpoints are gone"
            state, why = (DAMAGED, lost) if done else (STOPPED, NO_CHECKPOINT)
    elif records or done:
        state, why = STOPPED, "" if saved else NO_CHECKPOINT
    elif time.time() - written < TO_START:
        state, why = STARTING, "nothing is logged yet"
    else:
        state, why = STOPPED, "before anything was logged"
    return RunStatus(name, state, why, done, total, end, measure, best, written, records)


def _best(trainer: Trainer, records: Sequence[Record]) -> tuple[str | None, float | None]:
    for measure, best in trainer.measures:
        compared = (record.get(measure) for record in records if not record.get(UNPLANNED))
        values = [value for value in compared if is_finite(value)]
        if values:
            return measure, float(best(values))
    return None, None


def _ended_by(settings: Mapping[str, Any], records: Sequence[Record], total: int) -> tuple[str, int]:
    """The reason of a search's early end, by the conditions of `es.train`, and its generation.

    "" and `total` if it did not end early.
    """
    for name in Conditions._fields:
        if name not in settings:
            raise CheckpointError(f"es in its config.json lacks {name}")
    try:
        check_types("es in its config.json:", settings, Conditions)
    except ValueError as error:
        raise CheckpointError(str(error)) from error
    conditions, progress = Conditions(*(settings[name] for name in Conditions._fields)), Progress()
    if conditions.evaluate_every < 1:
        raise CheckpointError(
            f"evaluate_every in its config.json is {conditions.evaluate_every}: it must be 1 or more"
        )
    number, spent = 0, 0.0
    for record in records:
        number, last = record["generation"], progress.stage == len(conditions.advance_at)
        # The trainer compares seconds before it evaluates, so those of this generation may be too many.
        progress = progress._replace(seconds=progress.seconds + spent)
        if number:
            mean, episodes = _number(record, "return_mean"), _number(record, "episodes")
            progress = progress.played(conditions, mean, episodes)
            spent = _number(record, "wall_seconds" if "wall_seconds" in record else "seconds")
        if number % conditions.evaluate_every == 0 and HELD_OUT_RETURN in record:
            progress = progress.evaluated(_number(record, HELD_OUT_RETURN), counts=last and number > 0)
        if over := progress.over(conditions):
            return over, number
    over = progress._replace(seconds=progress.seconds + spent).over(conditions)
    return over, number if over else total


def _number(record: Record, name: str) -> Any:
    """A number of a record, which need not be finite."""
    value = record.get(name)
    if type(value) is float or is_finite(value):
        return value
    raise CheckpointError(f"{name} of generation {record['generation']} is {value!r}: it must be a number")


def _check_index(checkpoint: Path) -> None:
    """Raise CheckpointError for an incomplete checkpoint; this does not read its arrays."""
    try:
        index = read_json(checkpoint / "index" / "metadata")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"checkpoints/{checkpoint.name} cannot be read: {error}") from error
    arrays = index.get("arrays") if isinstance(index, dict) else None
    if not isinstance(arrays, list) or not (checkpoint / "arrays" / "_METADATA").is_file():
        raise CheckpointError(f"checkpoints/{checkpoint.name} is damaged: its arrays are not there")
