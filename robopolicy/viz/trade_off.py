"""A picture of the return of policies against the FLOPs of a step."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.ticker import EngFormatter, NullFormatter

from robopolicy.viz.pictures import COLOURS, picture

MARKERS = "osD^vPX*<>"
SIZE = (6.4, 3.6)  # inches: a column and a half of a paper
LEAST_SPAN = 0.1  # of the return's axis, as a share of the largest return
LINE = 0.2  # inches, height of an entry of the legend


def trade_off(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the mean return of each row against its FLOPs, on a logarithmic axis, to a .png or .svg.

    Args:
      path: the file; its suffix is the format.
      rows: with `attention`, `flops`, `return_mean`, `return_spread` (None for a single run) and `returns`,
        the mean of each run.
      title: title of the picture.
    """
    with picture(path, (SIZE[0], SIZE[1] + LINE * len(rows))) as figure:
        axes = figure.add_subplot()
        for number, row in enumerate(rows):
            colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
            count = len(row["returns"])
            label = row["attention"] + (f", {count} runs" if count > 1 else "")
            axes.plot([row["flops"]] * count, row["returns"], ".", color=colour, alpha=0.6, markersize=5)
            axes.errorbar(
                row["flops"],
                row["return_mean"],
                yerr=row["return_spread"],
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
        axes.margins(0.12)
        low, high = axes.get_ylim()
        # A minimum span, so that the axis does not exaggerate insignificant differences.
        missing = max(0.0, LEAST_SPAN * max(abs(low), abs(high)) - (high - low)) / 2
        axes.set_ylim(low - missing, high + missing)
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
        flops = [row["flops"] for row in rows]
        # Within a factor of ten, the axis needs labels between powers of ten.
        narrow = max(flops) < 10 * min(flops)
        axes.xaxis.set_minor_formatter(EngFormatter(sep=" ") if narrow else NullFormatter())
        axes.set_xlabel("FLOPs of a policy step")
        several = any(row["return_spread"] is not None for row in rows)
        axes.set_ylabel("mean return, and standard deviation between runs" if several else "mean return")
        figure.suptitle(title)
        figure.legend(loc="outside lower center")
