"""robopolicy flops"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from robopolicy.cli.options import Json, Task
from robopolicy.experiments.flop_table import count_rows, table


@dataclass(frozen=True)
class Flops:
    """Print the FLOPs of one policy step, part by part, beside those with exact softmax and of controls.

    Controls have no attention (all, with each encoder), or read no image (none).

    For example:
        robopolicy flops runs/first
        robopolicy flops runs/first bundle --attention "positive(m=64)" --per-second
        robopolicy flops --attention "angular_hybrid(m=8, n=8)" --csv flops.csv --picture flops.png
        robopolicy flops --task bimanual-sweep --patch 10
        robopolicy flops --task bimanual-sweep --history 3 --chunk 4
        robopolicy flops --preset front --variant memory --attention "trigonometric(m=32)"
    """

    policies: Positional[Annotated[tuple[str, ...], arg(metavar="[RUN|BUNDLE ...]")]] = ()
    """Runs, shipped policies and bundles to count. Default: the policy that the task trains."""
    task: Task = None
    attention: UseAppendAction[tuple[str, ...]] = ()
    """Mechanism to count with the settings of each run or bundle, or a control, such as "all, cnn";
    repeatable. Default, without runs and bundles: those that the paper compares."""
    variant: str | None = None
    """On stepping stones, what the policy does with attention: mask (the default), rank, trans or query;
    on their preset front also memory."""
    encoder: str | None = None
    """What reads the image: relu or cnn; with the front camera alone map or gru. Without attention, the
    control with this encoder is counted first. On stepping stones, the variant mask takes relu and cnn,
    too."""
    preset: str | None = None
    """On the bimanual sweep, the size of the policy: tiny, small (the default) or base. Elsewhere a preset of
    the task, whose observations the policy reads."""
    head: str | None = None
    """On the bimanual sweep, how actions are chosen: squared_error (the default), autoregressive,
    derivative_free or langevin."""
    patch: int | None = None
    """Side of a token, in pixels; default: that of the task."""
    history: int | None = None
    """On the bimanual sweep, frames of an image that a step reads; default: 1."""
    chunk: int | None = None
    """On the bimanual sweep, actions that are chosen at once; default: 1."""
    per_second: bool = False
    """Add FLOPs a second, at the control rate of the task."""
    csv: Path | None = None
    """Table to write: .csv."""
    picture: Path | None = None
    """Stacked bars to draw: .png or .svg."""
    json: Json = False

    def run(self) -> None:
        """Count, write files, print."""
        names = ("variant", "encoder", "preset", "head", "patch", "history", "chunk")
        settings = {name: value for name in names if (value := getattr(self, name)) is not None}
        rows = count_rows(
            self.policies,
            self.attention,
            task=self.task,
            settings=settings,
            per_second=self.per_second,
            csv=self.csv,
            picture=self.picture,
        )
        print(json_format.dumps(rows) if self.json else table(rows))
