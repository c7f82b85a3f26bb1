"""Rows of a comparison as text."""

from __future__ import annotations

from collections.abc import Sequence

from robopolicy.envs.registry import RECORDED, task_class
from robopolicy.experiments.comparison import Row, missing_controls, titles, verdicts
from robopolicy.experiments.tables import aligned
from robopolicy.naming import counted

MIDDLE = "{value:.2f} ({low:.2f} to {high:.2f})"


def table(rows: Sequence[Row], title: str) -> str:
    """Rows of `compare` as text, then verdicts, and the controls that are missing."""
    task = rows[0]["task"]
    outcomes = [] if task == RECORDED else [("success", "success_rate", "{:.1%}")]
    outcomes += [(o.title, o.mean, o.cell) for o in task_class(task).outcomes]
    heads = [title for title, _, _ in outcomes]
    title_line = ["attention", "runs", "return", "middle half", *heads, "FLOPs", "latency", "parameters"]
    lines = []
    for row, name in zip(rows, titles(rows), strict=True):
        spread = "" if row["return_spread"] is None else f" +- {row['return_spread']:.2f}"
        means = [shown.format(row[name]).strip() for _, name, shown in outcomes]
        latency = "" if row["latency_ms"] is None else f"{row['latency_ms']:.2f} ms"
        price = [f"{row['flops']:,}", latency, f"{row['parameters']:,}"]
        middle = "" if row["return_interval"] is None else MIDDLE.format(**row["return_interval"])
        first = [name, str(len(row["runs"])), f"{row['return_mean']:.2f}{spread}", middle]
        lines.append([*first, *means, *price])
    filled = [column for column, cells in enumerate(zip(*lines, strict=True)) if any(cells)]
    lines = [[cells[column] for column in filled] for cells in (title_line, *lines)]
    kind, seen = ("recorded", ", those of the training among them") if task == RECORDED else ("unseen", "")
    count = counted(rows[0]["episodes"], f"{kind} episodes")
    about = f"{title}, {count} each{seen}; spread between runs of one policy, cheapest first"
    lines_below = verdicts(rows)
    if missing := missing_controls(rows):
        without = "the table does not show what vision and attention contribute"
        lines_below.append(f"controls are missing: {'; '.join(missing)}. Without them, {without}")
    return "\n".join([about, *aligned(lines), "", *lines_below])
