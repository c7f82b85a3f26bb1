"""A picture of stacked bars: the parts of each bar are end to end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from robopolicy.viz.pictures import COLOURS, picture

STYLES = (*((colour, "") for colour in COLOURS), ("#ffffff", "////"), ("#ffffff", "...."))
BAR, LINE, MARGINS = 0.45, 0.19, 1.6  # inches: height of a bar, of a line of its label, of both margins
WIDTH = 10.0  # inches
LETTERS = 11  # per inch of a label
COLUMN = 1.6  # inches, width of a column of the legend


def stacked_bars(
    path: Path,
    bars: Sequence[tuple[str, Mapping[str, int]]],
    parts: Sequence[str],
    title: str | None,
    unit: str,
    width: float = WIDTH,
) -> None:
    """Draw `bars`, (label, size by part), to a .png or .svg, atomically.

    Args:
      path: the file; its suffix is the format.
      bars: from top to bottom, below their labels of any length.
      parts: all possible parts in order, at most 11, so that a part has the same style in every picture.
      title: title of the picture, or None.
      unit: label of the axis.
      width: width of the picture, inches.
    """
    labelled = [("\n".join(wrap(label, int(LETTERS * width))), sizes) for label, sizes in bars]
    present = [part for part in parts if any(sizes.get(part) for _, sizes in bars)]
    height = MARGINS + sum(BAR + LINE * (label.count("\n") + 1) for label, _ in labelled)
    columns = int(width / COLUMN)
    height += LINE * (len(present) // columns)
    with picture(path, (width, height)) as figure:
        _draw(figure, labelled, dict(zip(parts, STYLES, strict=False)), present, unit, columns)
        if title:
            figure.suptitle(title, parse_math=False)


def _draw(
    figure: Figure,
    bars: Sequence[tuple[str, Mapping[str, int]]],
    styles: Mapping[str, tuple[str, str]],
    present: Sequence[str],
    unit: str,
    columns: int,
) -> None:
    axes = figure.add_subplot()
    totals = [sum(sizes.values()) for _, sizes in bars]
    # In inches from the top, with space above each bar for the lines of its label.
    heights = np.array([BAR + LINE * (label.count("\n") + 1) for label, _ in bars])
    places = np.cumsum(heights) - BAR / 2
    ends = np.zeros(len(bars))
    handles: list[Any] = []
    for part in present:
        widths = np.array([sizes.get(part, 0) for _, sizes in bars])
        colour, hatch = styles[part]
        style: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "#444444", "linewidth": 0.5}
        handles.append(axes.barh(places, widths, left=ends, height=0.6 * BAR, label=part, **style))
        ends += widths
    engineering = EngFormatter(places=2, sep=" ")
    for place, total, (label, _) in zip(places, totals, bars, strict=True):
        # The name of a run may hold any characters.
        beside: dict[str, Any] = {"textcoords": "offset points", "parse_math": False}
        size = engineering(total) if total >= 1000 else f"{total:.0f}"
        axes.annotate(size, (total, place), (6, 0), verticalalignment="center", **beside)
        axes.annotate(label, (0, place - 0.3 * BAR), (0, 4), verticalalignment="bottom", **beside)
    axes.set_yticks([])
    axes.set_ylim(float(np.sum(heights)) + 0.3 * BAR, 0)
    axes.set_xlim(0, (1 + 1 / figure.get_figwidth()) * max(totals))  # leaves space for the totals
    axes.xaxis.set_major_locator(MaxNLocator(min(8, 2 * columns)))
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel(unit)
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)
