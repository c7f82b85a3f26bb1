"""Learning curves: pictures of the logs of runs."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter, PercentFormatter
from numpy.typing import NDArray

from robopolicy.viz.pictures import picture

Points = tuple[NDArray[np.float64], NDArray[np.float64]]  # x [N], ascending, and y [N]

COLOURS = 8  # of the style; further lines differ by their dashes
DASHES = ("-", "--", ":", "-.")
PANEL = (3.5, 2.7)  # inches
COLUMNS = 3
LETTERS, SAMPLE = 11, 6  # letters per inch of the legend, and the width of a line's sample in letters
TITLE, LINE = 0.4, 0.2  # inches: heights of the picture's title and of a line of the legend
FEW = 25  # largest number of points that are marked one by one
DECADES = 2  # span of positive values from which the axis is logarithmic


class Curve(NamedTuple):
    """One quantity in runs that differ by their seeds only. `runs` is empty if no run logs it.

    `changes` are the x at which a run changed its environment.
    """

    label: str
    runs: Sequence[Points]
    changes: Sequence[float] = ()


class Panel(NamedTuple):
    """One quantity in all runs. Each panel holds the same curves in the same order."""

    title: str
    curves: Sequence[Curve]
    is_share: bool = False


def mean_and_spread(runs: Sequence[Points]) -> tuple[NDArray[np.float64], Points]:
    """The x [M] that all `runs` cover, and the mean and standard deviation between runs there, [M] each.

    Runs are interpolated linearly between their points.
    """
    start, end = max(x[0] for x, _ in runs), min(x[-1] for x, _ in runs)
    every = np.unique(np.concatenate([x for x, _ in runs]))
    shared = every[(every >= start) & (every <= end)]
    values = np.array([np.interp(shared, x, y) for x, y in runs])
    spread = values.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros(len(shared))
    return shared, (values.mean(axis=0), spread)


def learning_curves(
    path: Path, panels: Sequence[Panel], along: str, title: str | None, columns: int = COLUMNS
) -> None:
    """Draw `panels` to a .png or .svg, atomically.

    A thick line is the mean of several seeds, a band their standard deviation; where these have one point, a
    marker and an error bar. Each run is a thin line.

    Args:
      path: the file; its suffix is the format.
      panels: one or more, of one or more curves each.
      along: label of the x axis.
      title: title of the picture, or None.
      columns: most panels side by side.
    """
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width = PANEL[0] * columns
    entries = _entries(panels, int(LETTERS * width) - SAMPLE)
    labels = [entry.get_label() for entry in entries]
    longest = max((len(line) for label in labels for line in label.split("\n")), default=0)
    beside = max(1, min(len(entries), int(LETTERS * width) // (longest + SAMPLE)))
    lines = max((label.count("\n") + 1 for label in labels), default=0) * -(-len(entries) // beside)
    height = PANEL[1] * rows + (TITLE if title else 0) + LINE * lines
    with picture(path, (width, height)) as figure:
        figure.set_layout_engine("constrained", h_pad=0.08)
        for number, panel in enumerate(panels):
            draw(figure.add_subplot(rows, columns, number + 1), panel, along)
        if title:
            figure.suptitle(title, parse_math=False)
        if entries:
            for text in figure.legend(handles=entries, loc="outside lower center", ncols=beside).get_texts():
                text.set_parse_math(False)  # the name of a run may hold any characters


def style_of(number: int) -> dict[str, Any]:
    """Colour and dashes of a picture's curve `number`."""
    return {"color": f"C{number % COLOURS}", "linestyle": DASHES[number // COLOURS % len(DASHES)]}


def _entries(panels: Sequence[Panel], letters: int) -> list[Any]:
    """Entries of the legend, with at most `letters` in a line: curves, bands and dotted lines."""
    curves = [curve for panel in panels for curve in panel.curves]
    labels = [curve.label for curve in panels[0].curves]
    entries: list[Any] = []
    if len(labels) > 1:
        entries += [Line2D([], [], label=label, **style_of(n)) for n, label in enumerate(labels)]
    if any(len(curve.runs) > 1 for curve in curves):
        band = "mean of the seeds where all have values, and standard deviation between them"
        entries.append(Patch(color="#555555", alpha=0.3, linewidth=0, label=band))
    if any(curve.changes for curve in curves):
        entries.append(Line2D([], [], color="#555555", linestyle=":", linewidth=1, label="next environment"))
    for entry in entries:
        entry.set_label("\n".join(wrap(entry.get_label(), letters)))
    return entries


def draw(axes: Axes, panel: Panel, along: str) -> None:
    """Draw a panel of `learning_curves`, with its title and labels; curve n has the colour n of the style.

    If curves end at very different x, the x axis is logarithmic, and points at 0 are left out.
    """
    ends = [x[-1] for curve in panel.curves for x, _ in curve.runs]
    wide = bool(ends) and max(ends) > 10**DECADES * min(ends) > 0
    for number, (_, runs, changes) in enumerate(panel.curves):
        style, alone = style_of(number), len(runs) == 1
        for x, y in runs:
            shown = x > 0 if wide else np.full(len(x), True)
            marker = "o" if shown.sum() == 1 or (alone and len(x) <= FEW) else ""
            thin: dict[str, Any] = {} if alone else {"alpha": 0.6, "linewidth": 1}
            axes.plot(x[shown], y[shown], marker=marker, **style, **thin)
        for change in changes:
            axes.axvline(change, color=style["color"], linestyle=":", linewidth=1, alpha=0.7)
        if len(runs) > 1:
            x, (mean, spread) = mean_and_spread(runs)
            shown = x > 0 if wide else np.full(len(x), True)
            x, mean, spread = x[shown], mean[shown], spread[shown]
            if len(x) == 1:  # neither a line nor a band would be visible
                axes.errorbar(x, mean, spread, marker="o", markersize=9, elinewidth=1.2, capsize=5, **style)
            else:
                axes.plot(x, mean, linewidth=2.4, **style)
                axes.fill_between(
                    x, mean - spread, mean + spread, color=style["color"], alpha=0.2, linewidth=0
                )
    values = np.concatenate([[], *(y for curve in panel.curves for _, y in curve.runs)])
    if panel.is_share:
        axes.set_ylim(-0.04, 1.04)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    elif len(values) and values.min() > 0 and values.max() > 10**DECADES * values.min():
        axes.set_yscale("log")
    if wide:
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    if axes.get_xlim()[1] >= 1e5:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_title(panel.title)
    axes.set_xlabel(along)
