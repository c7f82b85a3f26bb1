"""robopolicy compare"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robopolicy.cli.progress import CountingProgress
from robopolicy.envs.registry import task_class
from robopolicy.experiments.comparison import Row, compare, compared_on
from robopolicy.experiments.evaluation import FIRST_SEED, seeds_from
from robopolicy.experiments.output_files import check_picture


@dataclass(frozen=True)
class Compare:
    """Play runs on the same unseen episodes: what each earns against FLOPs, latency and parameters.

    Runs whose policies have the same settings count as one policy trained with several seeds: a row tells
    their mean, and the spread between them. Several policies of one run stay apart, and so do its copies.

    For example:
        robopolicy compare stepping-stones-angular-8x8 stepping-stones-positive-256 --episodes 20
        robopolicy compare runs/seed-0 runs/seed-1 runs/softmax-0 --picture compared.svg
    """

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN RUN [RUN ...]")]]
    """Run folders or names of shipped policies, all of one task."""
    episodes: int = 20
    """How many each run plays, on the seeds from --seed on."""
    seed: int = FIRST_SEED
    """Seed of the first episode."""
    engine: str | None = None
    """Physics engine, bullet or mujoco. Default: the one that the first run was trained on; for baselines
    alone, bullet where it is installed."""
    preset: str | None = None
    """Variant of the task; default: its first one, paper."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    picture: Path | None = None
    """Also draw returns against FLOPs, to this .png or .svg."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play, draw, print."""
        seeds = seeds_from(self.seed, self.episodes)
        check_picture("picture", self.picture)
        environment = compared_on(self.runs, self.engine, self.preset, self.episode_seconds)
        with CountingProgress("playing", len(self.runs) * self.episodes, "episodes") as progress:
            rows = compare(
                self.runs, environment, seeds, on_begin=progress.begin, on_episode=progress.advance
            )
        print(json_format.dumps(rows) if self.json else _table(rows, environment.task, self.episodes))
        if self.picture is not None:
            from robopolicy.viz.trade_off import trade_off

            trade_off(self.picture, rows, environment.title)


def _table(rows: list[Row], task: str, episodes: int) -> str:
    outcomes = [("success", "success_rate", "{:.1%}")]
    outcomes += [(o.title, o.mean, o.shown) for o in task_class(task).outcomes]
    head = [
        "attention",
        "runs",
        "return",
        *(title for title, _, _ in outcomes),
        "FLOPs",
        "latency",
        "parameters",
    ]
    lines = [head]
    for row in rows:
        spread = "" if row["return_spread"] is None else f" +- {row['return_spread']:.2f}"
        told = [shown.format(row[name]).strip() for _, name, shown in outcomes]
        price = [f"{row['flops']:,}", f"{row['latency_ms']:.2f} ms", f"{row['parameters']:,}"]
        lines.append(
            [row["attention"], str(len(row["runs"])), f"{row['return_mean']:.2f}{spread}", *told, *price]
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"{task}, {episodes} unseen episodes each; spread between runs of one policy, cheapest first"]
    for first, *rest in lines:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        text.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(text)
