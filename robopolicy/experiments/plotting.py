"""Learning curves of runs, drawn and summarised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from robopolicy.experiments.learning_curves import AXES, Group, all_logged, along_of, groups, panels
from robopolicy.experiments.output_files import check_picture


def plot(names: Sequence[str], out: Path, by: str | None = None) -> dict[str, Any]:
    """Draw the learning curves of runs; runs that differ by their seeds alone are one curve.

    Args:
      names: runs of one task, all trained in the same way.
      out: picture to write, .png or .svg.
      by: the horizontal axis: generation, episodes, seconds or flops for evolution, step or seconds for
        cloning.

    Returns the first, last, lowest and highest values of each curve. Raises ValueError or FileNotFoundError,
    in one line, for bad input, and ModuleNotFoundError without matplotlib.
    """
    check_picture("out", out)
    from robopolicy.viz.curves import learning_curves  # needs matplotlib, which is an extra

    runs = all_logged(names)
    along = along_of(runs, by)
    grouped = groups(runs)
    drawn = panels(grouped, along)
    task = runs[0].config["task"]
    title = f"{task}: {grouped[0].label}" if len(grouped) == 1 else task
    learning_curves(out, list(drawn.values()), AXES[along], title)
    curves = [_summary(group, number, drawn) for number, group in enumerate(grouped)]
    return {"out": str(out), "task": task, "by": along, "curves": curves}


def _summary(group: Group, number: int, drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Means over the runs of a curve, and the spread between them at the end."""
    series = {}
    for name, panel in drawn.items():
        values = [y for _, y in panel.curves[number].runs]
        if not values:
            continue
        last = [y[-1] for y in values]
        series[name] = {
            "title": panel.title,
            "points": [len(y) for y in values],
            "first": float(np.mean([y[0] for y in values])),
            "last": float(np.mean(last)),
            "last_spread": float(np.std(last, ddof=1)) if len(last) > 1 else None,
            "lowest": float(np.mean([y.min() for y in values])),
            "highest": float(np.mean([y.max() for y in values])),
        }
    return {
        "label": group.label,
        "runs": [run.name for run in group.runs],
        "seeds": [run.seed for run in group.runs],
        "series": series,
    }
