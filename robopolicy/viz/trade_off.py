"""A picture of the return of policies against the FLOPs of a step."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from robopolicy.viz.curves import COLOURS
from robopolicy.viz.pictures import picture

MARKERS = "osD^vPX*<>"
SIZE = (6.4, 3.6)  # inches: a column and a half of a paper
MARGIN = 0.12  # of each axis, as a share of what it shows
LEAST_SPAN = 0.1  # of the return's axis, as a share of the largest return
LINE = 0.2  # inches, height of an entry of the legend


def trade_off(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the return of each row against its FLOPs, on a logarithmic axis, to a .png or .svg.

    Args:
      path: the file; its suffix is the format.
      rows: with `label`, `flops`, `returns` (the mean of each run), `return_mean` and `return_interval`
        (None for a single run, else the interquartile mean with the ends of its interval).
      title: title of the picture.
    """
    with picture(path, (SIZE[0], SIZE[1] + LINE * len(rows))) as figure:
        draw(figure.add_subplot(), rows)
        figure.suptitle(title, parse_math=False)
        for text in figure.legend(loc="outside lower center").get_texts():
            text.set_parse_math(False)  # the name of a run may hold any characters


def draw(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the `rows` of `trade_off` into `axes`: row n has the colour n of the style."""
    for number, row in enumerate(rows):
        colour, marker = f"C{number % COLOURS}", MARKERS[number % len(MARKERS)]
        count = len(row["returns"])
        label = row["label"] + (f", {count} runs" if count > 1 else "")
        axes.plot([row["flops"]] * count, row["returns"], ".", color=colour, alpha=0.6, markersize=5)
        # Of a single run, the mean, without an interval.
        middle = row["return_interval"] or dict.fromkeys(("value", "low", "high"), row["return_mean"])
        value, low, high = (middle[name] for name in ("value", "low", "high"))
        axes.errorbar(
            row["flops"],
            value,
            yerr=[[value - low], [high - value]] if count > 1 else None,
            color=colour,
            marker=marker,
            markersize=8,
            markeredgecolor="black",
            markeredgewidth=0.6,
            capsize=4,
            linestyle="none",
            label=label,
        )
    axes.set_xscale("log")
    axes.margins(y=MARGIN)
    low, high = axes.get_ylim()
    # A minimum span, so that the axis does not exaggerate insignificant differences.
    missing = max(0.0, LEAST_SPAN * max(abs(low), abs(high)) - (high - low)) / 2
    axes.set_ylim(low - missing, high + missing)
    axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    flops = [row["flops"] for row in rows]
    # At least a factor of two to either side of the middle, so that labels have space.
    ratio, middle = max(flops) / min(flops), math.sqrt(min(flops) * max(flops))
    reach = max(2.0, ratio ** (0.5 + MARGIN))
    axes.set_xlim(middle / reach, middle * reach)
    if ratio < 10:  # the axis needs labels between powers of ten
        axes.xaxis.set_minor_locator(LogLocator(subs=(1, 2, 3, 5)))
        axes.xaxis.set_minor_formatter(EngFormatter(sep=" "))
    else:
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("FLOPs of a policy step")
    several = any(row["return_interval"] is not None for row in rows)
    axes.set_ylabel("return: interquartile mean, 95 % interval" if several else "mean return")
