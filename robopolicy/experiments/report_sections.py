"""The sections of a page about runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from robopolicy.costs.flops import COMPONENTS, OTHER
from robopolicy.envs.registry import RECORDED, task_class
from robopolicy.experiments.environments import variant_of
from robopolicy.experiments.flop_table import Row as Price
from robopolicy.experiments.flop_table import parts
from robopolicy.experiments.learning_curves import KINDS, Group, Run, panels
from robopolicy.experiments.trainings import NOT_SETTINGS, leaves
from robopolicy.viz.report import Card, Film, Picture, Row, Section, Table

Evaluation = dict[str, Any]

TRAINED = {"es": "evolution strategies", "bc": "cloning"}
WIDE, NARROW = 9.0, 3.7  # width of a picture on a page and on a phone, inches


def card(run: Run, played: Evaluation | None, price: Price, film: Film | None) -> Card:
    """The summary of a run."""
    counter = KINDS[run.kind]
    count = run.records[-1][counter]
    about = f"{run.attention}; {TRAINED[run.kind]}, {count} {counter}{'s' * (count != 1)}, seed {run.seed}"
    figures = []
    if played is not None:
        if run.config["task"] != RECORDED:
            figures.append((f"{played['success_rate']:.0%}", "success"))
        figures.append((_return(played), "return, ± between episodes"))
    figures.append((_short(price["total"]), "FLOPs of a step"))
    figures.append((f"{price['parameters']:,}", "parameters"))
    return Card(run.name, about, figures, film)


def curves(grouped: Sequence[Group], scratch: Path) -> Section:
    """Learning curves."""
    from robopolicy.viz.curves import learning_curves

    along = KINDS[grouped[0].runs[0].kind]
    drawn = panels(grouped, along)
    picture = Picture(
        scratch / "curves-wide.svg",
        scratch / "curves-narrow.svg",
        f"over {along}: {', '.join(panel.title for panel in drawn.values())}",
    )
    for path, columns in ((picture.wide, 3), (picture.narrow, 1)):
        learning_curves(path, list(drawn.values()), along, None, columns)
    return Section("Learning curves", pictures=[picture])


def evaluation(
    grouped: Sequence[Group], runs: Sequence[Run], played: Sequence[Evaluation | None]
) -> list[Section]:
    """Results on episodes, and their spread between seeds; no section without evaluations."""
    by_run = {run.name: result for run, result in zip(runs, played, strict=True) if result is not None}
    if not by_run:
        return []
    results, task = list(by_run.values()), runs[0].config["task"]
    rows = [
        Row("success", [f"{r['success_rate']:.1%}" for r in results]),
        Row("95 % interval of success", [_interval(r) for r in results]),
        Row("return, ± between episodes", [_return(r) for r in results]),
    ]
    for outcome in task_class(task).outcomes:
        cells = [outcome.cell.format(r[outcome.mean]).strip() for r in results]
        rows.append(Row(outcome.title, cells))
    rows += [
        Row("ended by", [", ".join(f"{cause} {n}" for cause, n in r["causes"].items()) for r in results]),
        Row("episodes", [str(len(r["returns"])) for r in results]),
        Row("seeds", [f"{r['seeds'][0]} to {r['seeds'][-1]}" for r in results]),
        Row("variant", [variant_of(r) for r in results]),
        Row("played", ["earlier" if r.get("kept") else "for this page" for r in results]),
    ]
    tables = [Table(["", *by_run], _measured(rows, task), numbers=True)]
    several = [group for group in grouped if len(group.runs) > 1]
    if several:
        tables.append(_between_seeds(several, by_run, task))
    seen = task == RECORDED
    kind = "Recorded episodes, those of the training among them" if seen else "Unseen episodes"
    words = f"{kind}, of the seeds below; ± is the standard deviation."
    return [Section("Evaluation", words, tables=tables)]


def _measured(rows: Sequence[Row], task: str) -> list[Row]:
    """`rows` without those of success, which recordings do not measure."""
    return [row for row in rows if task != RECORDED or "success" not in row.name]


def _between_seeds(several: Sequence[Group], by_run: Mapping[str, Evaluation], task: str) -> Table:
    columns = []
    for group in several:
        results = [by_run[run.name] for run in group.runs]
        rates = [r["success_rate"] for r in results]
        means = [float(np.mean(r["returns"])) for r in results]
        columns.append(
            (
                ", ".join(str(run.seed) for run in group.runs),
                f"{np.mean(rates):.1%} ± {np.std(rates, ddof=1):.1%}",
                f"{np.mean(means):.2f} ± {np.std(means, ddof=1):.2f}",
            )
        )
    names = ("seeds of training", "success, ± between seeds", "return, ± between seeds")
    rows = [Row(name, cells) for name, *cells in zip(names, *columns, strict=True)]
    return Table(["", *(group.label for group in several)], _measured(rows, task), numbers=True)


def flops(runs: Sequence[Run], prices: Sequence[Price], scratch: Path) -> Section:
    """FLOPs of a policy step by part."""
    from robopolicy.viz.stacked_bars import stacked_bars

    title = "FLOPs of a policy step"
    priced = list(zip(runs, prices, strict=True))
    bars = [(f"{run.name}: {run.attention}", price["by_component"]) for run, price in priced]
    picture = Picture(scratch / "flops-wide.svg", scratch / "flops-narrow.svg", f"{title} by part, as bars")
    for path, width in ((picture.wide, WIDE), (picture.narrow, NARROW)):
        stacked_bars(path, bars, (*COMPONENTS, OTHER), None, title, width)
    rows = [Row(p, [f"{price['by_component'].get(p, 0):,}" for price in prices]) for p in parts(prices)]
    keys = {"total": "total", "bytes moved": "traffic_bytes", "bytes at the peak": "peak_bytes"}
    for name, key in {**keys, "parameters": "parameters"}.items():
        rows.append(Row(name, [f"{price[key]:,}" for price in prices]))
    table = Table(["", *(run.name for run in runs)], rows, numbers=True)
    return Section(title, pictures=[picture], tables=[table])


def settings(runs: Sequence[Run]) -> Section:
    """The configs side by side."""
    columns = [
        dict(leaves({name: part for name, part in run.config.items() if name not in NOT_SETTINGS}))
        for run in runs
    ]
    words = "" if len(runs) == 1 else "Settings in which the runs differ are marked."
    return _side_by_side("Settings", words, [run.name for run in runs], columns)


def made_with(runs: Sequence[Run], now: Mapping[str, str], commit: Mapping[str, Any] | None) -> Section:
    """Versions and commits of the trainings, and of this page."""
    versions = [*(_mapping(run.config.get("versions")) for run in runs), now]
    commits = [*(_mapping(run.config.get("git")) for run in runs), commit or {}]
    columns = [{"commit": _commit(git), **own} for git, own in zip(commits, versions, strict=True)]
    words = "Versions that are not the same in all columns are marked."
    head = [*(f"training of {run.name}" for run in runs), "this page"]
    return _side_by_side("Versions", words, head, columns)


def _side_by_side(title: str, words: str, head: list[str], columns: Sequence[Mapping[str, Any]]) -> Section:
    """A folded table with a column for each mapping; rows with different cells are marked."""
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        cells = [str(column.get(name, "")) for column in columns]
        rows.append(Row(name, cells, differs=len(set(cells)) > 1))
    return Section(title, words, tables=[Table(["", *head], rows, numbers=False)], folded=True)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _commit(git: Mapping[str, Any]) -> str:
    changed = " with changes" if git.get("modified") else ""
    return f"{str(git['commit'])[:12]}{changed}" if "commit" in git else "not known"


def _interval(played: Evaluation) -> str:
    """Wilson's 95 % interval of the success rate."""
    count = len(played["returns"])
    tested = binomtest(round(played["success_rate"] * count), count)
    low, high = tested.proportion_ci(method="wilson")
    return f"{low:.1%} to {high:.1%}"


def _return(played: Evaluation) -> str:
    return f"{np.mean(played['returns']):.2f} ± {np.std(played['returns']):.2f}"


def _short(number: int) -> str:
    """A number in its largest unit of thousands."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return str(number)
