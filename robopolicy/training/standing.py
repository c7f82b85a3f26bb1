"""Where a run stands, told by what it has left on the disk, without JAX.

A trainer holds a lock on its run's config while it is at work, and leaves the words of an error that ends it
in `failure.txt`. A run that neither is at work nor has failed has come to its end, which its log proves, or
was stopped: by Ctrl-C or SIGTERM, by being killed, or with the machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

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
LONGEST_FAILURE = 2000  # characters
LARGEST = sys.float_info.max
TO_START = 120.0  # s, in which a trainer compiles, before it holds its run


class Trainer(NamedTuple):
    """How runs of a trainer are read: what its records count, the setting that says how many there are to
    be, and the measures that its best is told by, with what is done to find it, most telling first.
    """

    counter: str
    total: str
    measures: tuple[tuple[str, Any], ...]


TRAINERS = {
    "es": Trainer("generation", "generations", ((HELD_OUT_RETURN, max),)),
    "bc": Trainer("step", "steps", ((ROLLOUT_RETURN, max), (VALIDATION_LOSS, min))),
}


@dataclass(frozen=True)
class Standing:
    """Where a run stands.

    Attributes:
      trainer: name in `TRAINERS`.
      status: starting, running, finished, stopped or failed.
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
    raise CheckpointError(f"its config.json is none of a run: it has no settings of {' or '.join(TRAINERS)}")


def standing(folder: RunFolder) -> Standing:
    """Where a run stands. Raises CheckpointError, in one line, where it is damaged."""
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
    status, why = _status(folder, name, settings, records, done, total, time.time() - written)
    return Standing(name, status, why, done, total, measure, best, written, records)


def _status(
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
    progress = Progress()
    try:
        ends = Ends(**{name: settings[name] for name in Ends._fields})
        curriculum = Curriculum(tuple(settings["advance_at"]), settings["stage_limit"])
        for record in records:
            number, last = record["generation"], progress.stage == len(curriculum.advance_at)
            if number:
                progress = progress.played(curriculum, record["return_mean"], record["episodes"])
                spent: float = record["wall_seconds"] if "wall_seconds" in record else record["seconds"]
                progress = progress._replace(seconds=progress.seconds + spent)
            if number % settings["evaluate_every"] == 0 and HELD_OUT_RETURN in record:
                progress = progress.evaluated(record[HELD_OUT_RETURN], counts=last and number > 0)
        return progress.over(ends)
    except (KeyError, TypeError, ArithmeticError) as error:
        raise CheckpointError(f"its config and its log are not those of a search: {error!r}") from error


def check_index(checkpoint: Path) -> None:
    """Raise CheckpointError where a checkpoint was not completed; its arrays are not read."""
    try:
        index = json.loads((checkpoint / "index" / "metadata").read_text())
        sound = isinstance(index["arrays"], list) and (checkpoint / "arrays" / "_METADATA").is_file()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"checkpoints/{checkpoint.name} cannot be read: {error}") from error
    if not sound:
        raise CheckpointError(f"checkpoints/{checkpoint.name} is damaged: its arrays are not there")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
