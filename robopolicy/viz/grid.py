"""A picture of a grid of trainings: returns over the FLOPs of a step, and over those of training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from robopolicy.viz import trade_off
from robopolicy.viz.curves import Panel, draw
from robopolicy.viz.pictures import picture

PANEL = (4.4, 3.4)  # inches
LINE = 0.2  # inches, height of an entry of the legend
BAND = "Curves: a thin line is a seed, a thick one the mean of all seeds, a band their standard deviation."


def grid_picture(
    path: Path, rows: Mapping[str, Sequence[Mapping[str, Any]]], curves: Panel, along: str
) -> None:
    """Draw the results of a grid to a .png or .svg, atomically.

    Args:
      path: the file; its suffix is the format.
      rows: those of `trade_off.trade_off`, by the title of their panel; one panel or more.
      curves: returns in training, with a curve for each row in the same order.
      along: label of their x axis.
    """
    count = len(rows) + 1
    longest = max(map(len, rows.values()))
    with picture(path, (PANEL[0] * count, PANEL[1] + LINE * (longest // 2 + 2))) as figure:
        for number, (name, of_test) in enumerate(rows.items(), 1):
            axes = figure.add_subplot(1, count, number)
            trade_off.draw(axes, of_test)
            axes.set_title(name)
        handles, labels = axes.get_legend_handles_labels()
        draw(figure.add_subplot(1, count, count), curves, along)
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=2, title=BAND)
        for text in legend.get_texts():
            text.set_parse_math(False)  # the name of a run may hold any characters
