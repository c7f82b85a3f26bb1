"""robopolicy runs"""

from __future__ import annotations

import json as json_format
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robopolicy.cli.options import Json
from robopolicy.experiments.run_table import Row, run_rows
from robopolicy.experiments.tables import aligned
from robopolicy.naming import one_line

COLUMNS = ("run", "task", "trainer", "attention", "status", "done", "best", "FLOPs a step", "written")
MEASURES = {"held_out/return": "return", "rollout/return": "return", "validation/loss": "loss"}


@dataclass(frozen=True)
class ListRuns:
    """List the runs in a folder, the last written first.

    A run is starting before its log begins, for two minutes at most; running while its trainer holds it;
    finished at its end; failed after an error; damaged, with the cause, if it cannot be read or has lost its
    checkpoints; else stopped. The best result is the highest return on held-out seeds; of a clone, the
    highest in the simulator, or without rollouts the lowest loss on the frames set aside.

    For example:
        robopolicy runs
        robopolicy runs experiments --json
    """

    folder: Positional[Annotated[Path, arg(metavar="[FOLDER]")]] = Path("runs")
    """Folder to search, with all folders below it."""
    json: Json = False

    def run(self) -> None:
        """Look and print."""
        rows = run_rows(self.folder)
        if self.json:
            print(json_format.dumps(rows))
        else:
            print(_table(rows, time.time()) if rows else f"no runs in {str(self.folder)!r}")


def ago(seconds: float) -> str:
    """Time since then, in its largest unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"


def _table(rows: list[Row], now: float) -> str:
    lines = [list(COLUMNS)]
    for row in rows:
        best = "" if row["best"] is None else f"{MEASURES[row['measure']]} {row['best']:.2f}"
        done = "" if row["total"] is None else f"{row['done']}/{row['total']}"
        flops = "" if row["flops"] is None else f"{row['flops']:,}"
        words = [row["run"], row["task"], row["trainer"], row["attention"], row["status"]]
        cells = [*words, done, best, flops, ago(now - row["written"])]
        lines.append([one_line("" if cell is None else str(cell)) for cell in cells])
    head, *body = aligned(lines, range(COLUMNS.index("done")))
    text = [head]
    for line, row in zip(body, rows, strict=True):
        text += [line, f"    {row['status']}: {one_line(row['why'])}"] if row["why"] else [line]
    return "\n".join(text)
