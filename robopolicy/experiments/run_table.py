"""A folder's runs as rows of a table."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from robopolicy.policies.controls import label
from robopolicy.settings import is_finite
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.run_status import DAMAGED, status

Row = dict[str, Any]


def run_rows(folder: Path) -> list[Row]:
    """The runs in a folder, the last written first. Raises ValueError unless it is a folder."""
    if not folder.exists():
        raise ValueError(f"folder is {str(folder)!r}: it must be a folder of runs, and does not exist yet")
    if not folder.is_dir():
        raise ValueError(f"folder is {str(folder)!r}: it must be a folder, and is a file")
    rows = [run_row(name, path) for name, path in runs_below(folder)]
    return sorted(rows, key=lambda row: (-row["written"], row["run"]))


def runs_below(folder: Path) -> list[tuple[str, Path]]:
    """The runs in `folder`, itself included, with their names; a run is not searched for others.

    A link to a run is followed, and no other link.
    """
    if (folder / "config.json").is_file():
        return [(str(folder), folder)]
    result: list[tuple[str, Path]] = []

    def add(path: Path) -> None:
        result.append((str(path.relative_to(folder)), path))

    # A folder that cannot be read may hold a run, so it has a row.
    for where, below, _ in os.walk(folder, onerror=lambda error: add(Path(error.filename))):
        runs = [name for name in below if os.path.isfile(os.path.join(where, name, "config.json"))]
        for name in runs:
            add(Path(where) / name)
        below[:] = [name for name in below if name not in runs and not name.startswith(".")]
    return result


def run_row(name: str, path: Path) -> Row:
    """The row of a run; of a damaged one, with the cause."""
    row: Row = {"run": name, "path": str(path)}
    row |= dict.fromkeys(("task", "trainer", "attention", "done", "total", "measure", "best", "flops"))
    try:
        config = RunFolder(path).config()
        policy = config.get("policy")
        row["task"] = config.get("task")
        if isinstance(policy, dict) and policy.get("attention") is not None:
            row["attention"] = label(str(policy["attention"]), str(policy.get("encoder")))
        state = status(RunFolder(path))
        row |= {
            part: getattr(state, part)
            for part in ("trainer", "done", "total", "measure", "best", "status", "why", "written")
        }
        if row["done"] is not None and row["total"] is not None:
            row["total"] = max(row["done"], row["total"])  # a resume may make a run longer
        with suppress(ModuleNotFoundError):  # without JAX, FLOPs cannot be counted
            row["flops"] = flops_of(config)
    except Exception as error:  # a foreign file may break any layer, and is one row of many
        clear = isinstance(error, ValueError | OSError)
        why = str(error) if clear else f"it cannot be read: {type(error).__name__}: {error}"
        written = os.path.getmtime(path) if os.path.exists(path) else 0.0
        row |= {"status": DAMAGED, "why": why, "written": written}
    return row


def flops_of(config: dict[str, Any]) -> int:
    """FLOPs of a step from a run's config, or counted for an older config without them.

    Raises ValueError if its policy cannot be read.
    """
    stored = config.get("flops")
    if type(stored) is int and is_finite(stored) and stored >= 0:
        return stored
    return _counted(json.dumps(config.get("policy"), sort_keys=True))


@cache
def _counted(policy: str) -> int:
    """FLOPs of the policy that this JSON describes."""
    # Imported here: JAX takes a second, and most runs store their count.
    from robopolicy.costs.flops import count_step
    from robopolicy.policies.catalogue import blank_policy, restore

    return count_step(blank_policy(restore(json.loads(policy)))).total
