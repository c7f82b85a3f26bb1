"""robopolicy runs"""

from __future__ import annotations

import json as json_format
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

Row = dict[str, Any]

COLUMNS = ("run", "task", "trainer", "attention", "status", "done", "best", "FLOPs a step", "written")
MEASURES = {"held_out/return": "return", "rollout/return": "return", "validation/loss": "loss"}


@dataclass(frozen=True)
class ListRuns:
    """List the runs in a folder, whoever wrote last first.

    A run is running while its trainer holds it, finished once it has come to its end, failed where an error
    ended it, stopped where something else did, and damaged where it cannot be read or has lost its
    checkpoints, with what is wrong. Its best is the highest return on held-out seeds; of a cloned policy that
    in the simulator, or where it was not played there, the lowest loss on frames set aside.

    For example:
        robopolicy runs
        robopolicy runs experiments --json
    """

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="[FOLDER]")]] = Path("runs")
    """Folder to look into, with all below it."""
    json: Annotated[bool, tyro.conf.arg(help="Print the rows as JSON on stdout.")] = False

    def run(self) -> None:
        """Look and print."""
        from robopolicy.experiments.run_table import run_row, runs_below

        if not self.folder.is_dir():
            what = "a file" if self.folder.exists() else "not there"
            raise ValueError(f"folder is {str(self.folder)!r}: it must be a folder, and is {what}")
        rows = [run_row(name, path) for name, path in runs_below(self.folder)]
        rows.sort(key=lambda row: (-row["written"], row["run"]))
        if self.json:
            print(json_format.dumps(rows))
        else:
            print(_table(rows, time.time()) if rows else f"no runs in {str(self.folder)!r}")


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
