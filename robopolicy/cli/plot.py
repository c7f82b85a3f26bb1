"""robopolicy plot"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from robopolicy.cli.options import Env, Json
from robopolicy.experiments.learning_curves import plot
from robopolicy.naming import one_line


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs, all trained by evolution or all by cloning.

    Runs that differ by their seeds alone are one curve: their mean, and the spread between them. A copy of a
    run has a curve of its own. Each logged quantity has a panel. A run may still be in progress.

    For example:
        robopolicy plot runs/first --out curves.svg
        robopolicy plot runs/seed-0 runs/seed-1 runs/softmax-0 --out curves.png --by flops
    """

    runs: Positional[Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]")]]
    """Run folders or names of shipped policies, all of one task."""
    out: Path
    """Picture to write: .png or .svg."""
    by: str | None = None
    """Horizontal axis. For evolution: generation (the default), episodes, seconds, or flops of all policy
    steps so far. For cloning: step (the default) or seconds."""
    env: Env = None
    json: Json = False

    def run(self) -> None:
        """Read, draw, print."""
        result = plot(self.runs, self.out, self.by)
        print(json_format.dumps(result) if self.json else _words(result))


def _words(result: dict[str, Any]) -> str:
    """First and last values of all curves."""
    lines = [f"{result['out']}: learning curves over {result['by']}, {result['task']}"]
    width = max(len(ends["title"]) for curve in result["curves"] for ends in curve["series"].values())
    for curve in result["curves"]:
        count = len(curve["runs"])
        lines.append(one_line(curve["label"]) + (f", {count} runs" if count > 1 else ""))
        for ends in curve["series"].values():
            spread = "" if ends["last_spread"] is None else f" +- {ends['last_spread']:.3g}"
            lines.append(f"  {ends['title']:{width}}  {ends['first']:.4g} to {ends['last']:.4g}{spread}")
    return "\n".join(lines)
