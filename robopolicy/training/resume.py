"""The point at which a resumed run continues, and the work beyond that point."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from robopolicy.reading_json import read_object
from robopolicy.settings import from_json
from robopolicy.training.checkpoint import RESUME, CheckpointError, RunFolder
from robopolicy.training.metrics import cut, read
from robopolicy.training.progress import Limits
from robopolicy.writing import clear_about_full_disks, write_atomically

DISTANCE = "checkpoint_every.txt"  # in a run that was resumed with a longer distance than at its beginning
LIMITS = "limits.json"  # in a run that was resumed with other limits than at its beginning


def resume_point(run: RunFolder, counter: str) -> int:
    """The latest checkpoint of a run, whose records count `counter` (`generation` or `step`); 0 without one.

    A killed run has logged at most `longest_distance` generations or steps beyond its latest checkpoint, and
    repeats them bit for bit. Raises CheckpointError if the log goes further, since checkpoints are then
    missing, or if the latest checkpoint is damaged.
    """
    saved = run.generations()
    done = run.load(saved[-1])[0] if saved else 0
    logged = max((record[counter] for record in read(run.metrics_path, counter)), default=0)
    if logged > done + longest_distance(run):
        latest = f"its latest checkpoint is {done}" if saved else "it has no checkpoint"
        raise CheckpointError(
            f"{str(run.path)!r} has a log up to {counter} {logged}, and {latest}: put back the missing "
            f"checkpoints, or go on from {done} with --resume-from {done}, which keeps the old log"
        )
    return done


def longest_distance(run: RunFolder) -> int:
    """The longest distance between two checkpoints in any part of the run; 0 if unknown.

    Raises CheckpointError if the note of the run is not a number.
    """
    config, note = run.config(), run.path / DISTANCE
    settings = config.get("es") or config.get("bc")
    first = settings.get("checkpoint_every") if isinstance(settings, dict) else 0
    longest = note.read_text(errors="replace").strip() if note.is_file() else "0"
    if not longest.isdecimal():
        raise CheckpointError(f"{str(note)!r} holds {longest[:20]!r}: a number was expected; remove it")
    return max(first if isinstance(first, int) else 0, int(longest))


def note_distance(run: RunFolder, checkpoint_every: int) -> None:
    """Note the distance between checkpoints in the run, if it is longer than in any part before."""
    if checkpoint_every > longest_distance(run):
        with clear_about_full_disks(run.path, RESUME):
            write_atomically(run.path / DISTANCE, f"{checkpoint_every}\n")


def latest_limits(run: RunFolder) -> dict[str, Any]:
    """The `Limits` by name with which the run was resumed last; {} for those that it began with.

    Raises CheckpointError if the note of the run is damaged.
    """
    note = run.path / LIMITS
    if not note.is_file():
        return {}
    stored = read_object(note, error=CheckpointError)
    try:
        return asdict(from_json(f"{str(note)!r}:", Limits, stored))
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def note_limits(run: RunFolder, limits: Limits) -> None:
    """Note the limits with which the run is resumed, if they are not those of its last part."""
    new = asdict(limits)
    if ((run.config().get("es") or {}) | latest_limits(run)).items() >= new.items():
        return
    with clear_about_full_disks(run.path, RESUME):
        write_atomically(run.path / LIMITS, json.dumps(new) + "\n")


def set_aside(run: RunFolder, counter: str, after: int) -> None:
    """Make `after` the latest checkpoint of a run, or let it begin again if `after` is 0.

    Later checkpoints move to a new folder `set-aside-N` of the run, beside a copy of the whole log; nothing
    is deleted. Raises ValueError if there is no checkpoint `after`, CheckpointError if it is damaged.
    """
    saved, records = run.generations(), read(run.metrics_path, counter)
    if after not in (0, *saved):
        has = ", ".join(map(str, saved)) or "none"
        raise ValueError(f"resume_from is {after}: it must be a checkpoint of the run ({has}), or 0")
    if after:
        run.load(after)
    later = [number for number in saved if number > after or not after]
    if not later and all(record[counter] <= after for record in records):
        return
    aside = copy_log(run)
    for number in later:
        os.rename(run.checkpoints / str(number), aside / str(number))
    cut(run.metrics_path, counter, after if after else -1)


def copy_log(run: RunFolder) -> Path:
    """Copy the log of a run to a new folder `set-aside-N` in it; returns that folder."""
    number = 1
    while (run.path / f"set-aside-{number}").exists():
        number += 1
    aside = run.path / f"set-aside-{number}"
    with clear_about_full_disks(run.path):
        aside.mkdir()
        if run.metrics_path.exists():
            shutil.copyfile(run.metrics_path, aside / run.metrics_path.name)
    return aside
