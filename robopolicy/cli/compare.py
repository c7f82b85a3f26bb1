"""robopolicy compare"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluate import FIRST_SEED, evaluation
from robopolicy.cli.tasks import TASKS
from robopolicy.envs.physics import default_engine

Row = dict[str, Any]


@dataclass(frozen=True)
class Compare:
    """Play runs on the same unseen episodes: what each earns against FLOPs, latency and parameters.

    Runs whose policies have the same settings count as one policy trained with several seeds: a row tells
    their mean, and the spread between them. Several policies of one run stay apart.

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
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Variant of the task."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    picture: Path | None = None
    """Also draw returns against FLOPs, to this .png or .svg."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play, draw, print."""
        from robopolicy.cli.files import check_picture
        from robopolicy.cli.progress import CountingProgress

        if len({_where(name) for name in self.runs}) < max(2, len(self.runs)):
            given = ", ".join(self.runs) or "nothing"
            raise ValueError(f"RUN is given as {given}: it must be two or more, none of them twice")
        if self.episodes < 1:
            raise ValueError(f"episodes is {self.episodes}: it must be 1 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        check_picture("picture", self.picture)
        groups, task = self._groups()
        seeds = range(self.seed, self.seed + self.episodes)
        with CountingProgress("playing", len(self.runs) * self.episodes, "episodes") as progress:
            rows = [self._row(names, config, task, seeds, progress) for names, config in groups]
        rows.sort(key=lambda row: row["flops"])
        print(json_format.dumps(rows) if self.json else _table(rows, task, self.episodes))
        if self.picture is not None:
            from robopolicy.viz.trade_off import trade_off

            trade_off(self.picture, rows, f"{task} ({self.preset}, {self.engine})")

    def _groups(self) -> tuple[list[tuple[list[str], Any]], str]:
        """The runs by the settings of their policies, in the order given, and their task."""
        from robopolicy.cli.runs import load_run, task_of

        groups: dict[tuple[Any, int], list[str]] = {}
        tasks: dict[str, str] = {}
        folders: list[Path] = []
        for name in self.runs:
            trained, (folder, _) = load_run(name), _where(name)
            # Two policies of one folder are one training: between them there is no spread to tell.
            groups.setdefault((trained.config, folders.count(folder)), []).append(name)
            folders.append(folder)
            tasks.setdefault(task_of(name, trained.run), name)
        if len(tasks) > 1:
            trained_on = ", ".join(f"{name!r} on {task!r}" for task, name in tasks.items())
            raise ValueError(f"RUN {trained_on}: all must be trained on one task")
        (task,) = tasks
        return [(names, config) for (config, _), names in groups.items()], task

    def _row(self, names: list[str], config: Any, task: str, seeds: range, progress: Any) -> Row:
        """What the runs of one policy earn and what it costs."""
        import numpy as np

        from robopolicy.flops import count_step
        from robopolicy.policies.base import parameter_count
        from robopolicy.policies.catalogue import untold

        policy = untold(config)
        played = [
            evaluation(
                name,
                task,
                seeds,
                engine=self.engine,
                preset=self.preset,
                episode_seconds=self.episode_seconds,
                on_episode=progress.advance,
            )
            for name in names
        ]
        means = [result["return_mean"] for result, _ in played]
        shared = ("success_rate", *(outcome.mean for outcome in TASKS[task].outcomes))
        return {
            "task": task,
            "attention": config.attention,
            "runs": names,
            "flops": count_step(policy).total,
            "parameters": parameter_count(policy),
            "latency_ms": 1e3 * float(np.median([latency for _, latency in played])),
            "episodes": len(seeds),
            "return_mean": float(np.mean(means)),
            # Between seeds of training, which is what a claim about a mechanism must survive.
            "return_spread": float(np.std(means, ddof=1)) if len(means) > 1 else None,
            "return_std": float(np.mean([result["return_std"] for result, _ in played])),
            **{name: float(np.mean([result[name] for result, _ in played])) for name in shared},
            "returns": means,
        }


def _where(name: str) -> tuple[Path, str]:
    """A run's folder, however it is spelt, and which of its policies is meant."""
    from robopolicy.cli.runs import find_run

    folder, which = find_run(name)
    return folder.resolve(), which


def _table(rows: list[Row], task: str, episodes: int) -> str:
    outcomes = [("success", "success_rate", "{:.1%}")]
    outcomes += [(o.title, o.mean, o.shown) for o in TASKS[task].outcomes]
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
