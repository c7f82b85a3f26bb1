"""The picture of a grid of trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robopolicy.experiments.comparison import Row, titled
from robopolicy.experiments.learning_curves import AXES, Group, logged, panels
from robopolicy.naming import one_line

if TYPE_CHECKING:
    from robopolicy.viz.curves import Points

DRAWN, ALONG = "held_out/return", "flops"


def draw_grid(path: Path, rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Draw returns over the FLOPs of a step and of training to a .png or .svg; needs matplotlib, an extra.

    Args:
      path: the file; its suffix is the format.
      rows: those of `grid_results`, one or more for each test.

    Returns a line about each run that has no curve, since its log is damaged or lacks the returns.
    """
    from robopolicy.viz.curves import Curve, Panel
    from robopolicy.viz.grid import grid_picture

    labelled = {test: titled(of_test) for test, of_test in rows.items()}
    curves, notes = [], []
    for row in next(iter(labelled.values())):
        drawn: list[Points] = []
        for name in row["runs"]:
            try:
                drawn += _returns(name)
            except ValueError as error:
                notes.append(one_line(f"{name} has no curve in the picture: {error}"))
        curves.append(Curve(row["label"], drawn))
    grid_picture(path, labelled, Panel("return on held-out seeds", curves), AXES[ALONG])
    return notes


def _returns(name: str) -> Sequence[Points]:
    """The returns of a run along its training. Raises ValueError, in one line, if it has logged none."""
    found = panels([Group(name, [logged(name)])], ALONG)
    if DRAWN not in found:
        raise ValueError(f"it has logged no {DRAWN}")
    return found[DRAWN].curves[0].runs
