"""robopolicy runs"""

from __future__ import annotations

import json as json_format
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import tyro

Row = dict[str, Any]

COLUMNS = ("run", "task", "trainer", "attention", "status", "done", "best", "FLOPs a step", "written")
MEASURES = {"held_out/return": "return", "rollout/return": "return", "validation/loss": "loss"}
DAMAGED = "damaged"


@dataclass(frozen=True)
class ListRuns:
    """List the runs in a folder, whoever wrote last first.

    A run is running while its trainer holds it, finished once it has come to its end, failed where an error
    ended it, stopped where something else did, and damaged where it cannot be read, with what is wrong. Its
    best is the highest return on held-out seeds; of a cloned policy that in the simulator, or where it was
    not played there, the lowest loss on frames set aside.

    For example:
        robopolicy runs
        robopolicy runs experiments --json
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="[FOLDER]")]] = Path("runs")
    """Folder to look into, with all below it."""
    json: Annotated[bool, tyro.conf.arg(help="Print the rows as JSON on stdout.")] = False

    def run(self) -> None:
        """Look and print."""
        if not self.folder.is_dir():
            what = "a file" if self.folder.exists() else "not there"
            raise ValueError(f"folder is {str(self.folder)!r}: it must be a folder, and is {what}")
        rows = [_row(name, path) for name, path in runs_below(self.folder)]
        rows.sort(key=lambda row: (-row["written"], row["run"]))
        if self.json:
            print(json_format.dumps(rows))
        else:
            print(_table(rows, time.time()) if rows else f"no runs in {str(self.folder)!r}")


def runs_below(folder: Path) -> list[tuple[str, Path]]:
    """The runs in `folder`, itself included, by their names; nothing is looked for inside of a run.

    Links are followed where they lead to a run, and no further.
    """
    if (folder / "config.json").is_file():
        return [(str(folder), folder)]
    found: list[tuple[str, Path]] = []

    def add(path: Path) -> None:
        found.append((str(path.relative_to(folder)), path))

    def unreadable(error: OSError) -> None:
        add(Path(error.filename))  # there may be a run behind it, so it has a row

    for where, below, _ in os.walk(folder, onerror=unreadable):
        runs = [name for name in below if os.path.isfile(os.path.join(where, name, "config.json"))]
        for name in runs:
            add(Path(where) / name)
        below[:] = [name for name in below if name not in runs and not name.startswith(".")]
    return found


def _row(name: str, path: Path) -> Row:
    """A run, or what is wrong with it."""
    from robopolicy.training.checkpoint import RunFolder
    from robopolicy.training.standing import standing

    row: Row = {"run": name, "path": str(path)}
    row |= dict.fromkeys(("task", "trainer", "attention", "done", "total", "measure", "best", "flops"))
    try:
        config = RunFolder(path).config()
        policy = config.get("policy")
        row["task"] = config.get("task")
        row["attention"] = policy.get("attention") if isinstance(policy, dict) else None
        stands = standing(RunFolder(path))
        row |= {
            part: getattr(stands, part)
            for part in ("trainer", "done", "total", "measure", "best", "status", "why", "written")
        }
        with suppress(ModuleNotFoundError):  # without JAX nothing can be counted, and nothing is damaged
            row["flops"] = flops_of(config)
    except Exception as error:  # what a stranger has written may break any layer, and is one row of many
        kind = "" if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: "
        written = os.path.getmtime(path) if os.path.exists(path) else 0.0
        row |= {"status": DAMAGED, "why": f"{kind}{error}", "written": written}
    return row


def flops_of(config: dict[str, Any]) -> int:
    """FLOPs of a step, as the run's config tells them, or counted where an older one does not.

    Raises ValueError where its policy cannot be read.
    """
    told = config.get("flops")
    if type(told) is int and told >= 0:
        return told
    return _counted(json_format.dumps(config.get("policy"), sort_keys=True))


@cache
def _counted(policy: str) -> int:
    """FLOPs of the policy that this JSON describes."""
    # Imported here: JAX takes a second, and runs that tell their price need none.
    from robopolicy.flops import count_step
    from robopolicy.policies.catalogue import restore, untold

    return count_step(untold(restore(json_format.loads(policy)))).total


def ago(seconds: float) -> str:
    """How long ago, in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _table(rows: list[Row], now: float) -> str:
    from robopolicy.runtime.manifest import printable

    lines = [list(COLUMNS)]
    for row in rows:
        best = "" if row["best"] is None else f"{MEASURES[row['measure']]} {row['best']:.2f}"
        done = "" if row["total"] is None else f"{row['done']}/{row['total']}"
        flops = "" if row["flops"] is None else f"{row['flops']:,}"
        words = [row["run"], row["task"], row["trainer"], row["attention"], row["status"]]
        cells = [*words, done, best, flops, ago(now - row["written"])]
        lines.append([printable("" if cell is None else str(cell)) for cell in cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    left = COLUMNS.index("done")
    text = []
    for cells, about in zip(lines, [None, *rows], strict=True):
        padded = [cell.ljust(width) for cell, width in zip(cells[:left], widths, strict=False)]
        padded += [cell.rjust(width) for cell, width in zip(cells[left:], widths[left:], strict=True)]
        text.append("  ".join(padded).rstrip())
        if about is not None and about["why"]:
            text.append(f"    {about['status']}: {printable(about['why'])}")
    return "\n".join(text)
