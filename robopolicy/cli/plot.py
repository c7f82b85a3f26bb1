"""robopolicy plot"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs, all trained by evolution or all by cloning.

    Runs that differ by their seeds alone are one curve: their mean, and the spread between them. A copy of a
    run has a curve of its own. There is a panel for everything that the runs have logged, and a run may still
    be in progress.

    For example:
        robopolicy plot runs/first --out curves.svg
        robopolicy plot runs/seed-0 runs/seed-1 runs/softmax-0 --out curves.png --by flops
    """

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]]
    """Run folders or names of shipped policies, all of one task."""
    out: Path
    """The .png or .svg to write."""
    by: str | None = None
    """What the curves run over. Of evolution: generation (the default), episodes, seconds or flops, which are
    those of all policy steps so far. Of cloning: step (the default) or seconds."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Read, draw, print."""
        from robopolicy.experiments.learning_curves import AXES, all_logged, along_of, groups, panels
        from robopolicy.experiments.output_files import check_picture

        check_picture("out", self.out)
        runs = all_logged(self.runs)
        along = along_of(runs, self.by)
        grouped = groups(runs)
        drawn = panels(grouped, along)
        from robopolicy.viz.curves import learning_curves

        labels = [group.label for group in grouped]
        task = runs[0].config["task"]
        title = f"{task}: {labels[0]}" if len(labels) == 1 else task
        learning_curves(self.out, list(drawn.values()), AXES[along], title)
        told = {
            "out": str(self.out),
            "task": task,
            "by": along,
            "curves": [_summary(group, number, drawn) for number, group in enumerate(grouped)],
        }
        print(json_format.dumps(told) if self.json else _words(told, drawn))


def _summary(group: Any, number: int, drawn: dict[str, Any]) -> dict[str, Any]:
    """What a curve comes to: means over its runs, and the spread between them at the end."""
    import numpy as np

    series = {}
    for name, panel in drawn.items():
        values = [y for _, y in panel.curves[number].runs]
        if not values:
            continue
        last = [y[-1] for y in values]
        series[name] = {
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


def _words(told: dict[str, Any], drawn: dict[str, Any]) -> str:
    """The ends of all curves."""
    from robopolicy.runtime.manifest import printable

    lines = [f"{told['out']}: learning curves over {told['by']}, {told['task']}"]
    width = max(len(panel.title) for panel in drawn.values())
    for curve in told["curves"]:
        count = len(curve["runs"])
        lines.append(printable(curve["label"]) + (f", {count} runs" if count > 1 else ""))
        for name, ends in curve["series"].items():
            spread = "" if ends["last_spread"] is None else f" +- {ends['last_spread']:.3g}"
            title = drawn[name].title.ljust(width)
            lines.append(f"  {title}  {ends['first']:.4g} to {ends['last']:.4g}{spread}")
    return "\n".join(lines)
