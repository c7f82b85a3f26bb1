"""What there is to say about runs, as the sections of a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from robopolicy.costs.flops import COMPONENTS, OTHER
from robopolicy.envs.registry import task_class
from robopolicy.experiments.flop_table import Row as Price
from robopolicy.experiments.flop_table import parts
from robopolicy.experiments.learning_curves import KINDS, NOT_SETTINGS, Group, Run, leaves, panels
from robopolicy.experiments.runs import find_run
from robopolicy.viz.report import Card, Film, Picture, Row, Section, Table

Evaluation = dict[str, Any]

TRAINED = {"es": "evolution strategies", "bc": "cloning"}
NARROW = 3.7  # inches: of a picture on a phone
WIDE = 9.0


def stored_evaluation(name: str, engine: str | None, preset: str | None) -> Evaluation | None:
    """The evaluation stored beside a run, of its last policy; None without one of this engine and preset.

    Raises ValueError, in one line, where it is damaged.
    """
    folder, which = find_run(name)
    path = folder / "evaluation.json"
    if which != "last" or not path.is_file():
        return None
    try:
        found = json.loads(path.read_text())[engine]
        if found["preset"] != preset:
            return None
        outcomes = [float(found[outcome.mean]) for outcome in task_class(found["task"]).outcomes]
        numbers = [float(found["success_rate"]), *map(float, found["returns"]), *outcomes]
        counts = [int(count) for count in found["causes"].values()]
        if not len(found["returns"]) == len(found["seeds"]) == sum(counts) > 0 or not numbers:
            raise ValueError("its episodes do not add up")
    except KeyError as error:
        if error.args == (engine,):
            return None
        raise ValueError(f"{str(path)!r} is no evaluation: it tells no {error}") from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is no evaluation: {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is no evaluation: it must hold results by engine") from error
    return dict(found) | {"kept": True}


def card(run: Run, played: Evaluation | None, price: Price, film: Film | None) -> Card:
    """A run at a glance."""
    counter = KINDS[run.kind]
    count = run.records[-1][counter]
    about = f"{run.attention}; {TRAINED[run.kind]}, {count} {counter}{'s' * (count != 1)}, seed {run.seed}"
    figures = []
    if played is not None:
        figures.append((f"{played['success_rate']:.0%}", "success"))
        figures.append((_return(played), "return, ± between episodes"))
    figures.append((_short(price["total"]), "FLOPs of a step"))
    figures.append((f"{price['parameters']:,}", "parameters"))
    return Card(run.name, about, figures, film)


def curves(grouped: Sequence[Group], scratch: Path) -> Section:
    """What the runs have logged."""
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
    """How the runs do on unseen episodes, and between seeds; nothing where none was played."""
    told = {run.name: found for run, found in zip(runs, played, strict=True) if found is not None}
    if not told:
        return []
    results = list(told.values())
    rows = [
        Row("success", [f"{r['success_rate']:.1%}" for r in results]),
        Row("95 % interval of success", [_interval(r) for r in results]),
        Row("return, ± between episodes", [_return(r) for r in results]),
    ]
    for outcome in task_class(runs[0].config["task"]).outcomes:
        cells = [outcome.shown.format(r[outcome.mean]).strip() for r in results]
        rows.append(Row(outcome.title, cells))
    rows += [
        Row("ended by", [", ".join(f"{cause} {n}" for cause, n in r["causes"].items()) for r in results]),
        Row("episodes", [str(len(r["returns"])) for r in results]),
        Row("seeds", [f"{r['seeds'][0]} to {r['seeds'][-1]}" for r in results]),
        Row("preset, engine", [", ".join(filter(None, (r["preset"], r["engine"]))) for r in results]),
        Row("played", ["when it was kept" if r.get("kept") else "for this page" for r in results]),
    ]
    tables = [Table(["", *told], rows, numbers=True)]
    several = [group for group in grouped if len(group.runs) > 1]
    if several:
        tables.append(_between_seeds(several, told))
    words = "Unseen episodes, of the seeds below; ± is the standard deviation."
    return [Section("Evaluation", words, tables=tables)]


def _between_seeds(several: Sequence[Group], told: Mapping[str, Evaluation]) -> Table:
    rows: list[list[str]] = [[], [], []]
    for group in several:
        results = [told[run.name] for run in group.runs]
        rates = [r["success_rate"] for r in results]
        means = [float(np.mean(r["returns"])) for r in results]
        rows[0].append(", ".join(str(run.seed) for run in group.runs))
        rows[1].append(f"{np.mean(rates):.1%} ± {np.std(rates, ddof=1):.1%}")
        rows[2].append(f"{np.mean(means):.2f} ± {np.std(means, ddof=1):.2f}")
    names = ("seeds of training", "success, ± between seeds", "return, ± between seeds")
    head = ["", *(group.label for group in several)]
    return Table(head, [Row(name, cells) for name, cells in zip(names, rows, strict=True)], numbers=True)


def flops(runs: Sequence[Run], prices: Sequence[Price], scratch: Path) -> Section:
    """What a step costs, part by part."""
    from robopolicy.viz.stacked_bars import stacked_bars

    bars = [(f"{run.name}: {run.attention}", price["by_component"])
            for run, price in zip(runs, prices, strict=True)]  # fmt: skip
    picture = Picture(
        scratch / "flops-wide.svg", scratch / "flops-narrow.svg", "FLOPs of a policy step by part, as bars"
    )
    for path, width in ((picture.wide, WIDE), (picture.narrow, NARROW)):
        stacked_bars(path, bars, (*COMPONENTS, OTHER), None, "FLOPs of a policy step", width)
    rows = [Row(p, [f"{price['by_component'].get(p, 0):,}" for price in prices]) for p in parts(prices)]
    for name, key in (("total", "total"), ("bytes moved", "traffic_bytes"),
                      ("bytes at the peak", "peak_bytes"), ("parameters", "parameters")):  # fmt: skip
        rows.append(Row(name, [f"{price[key]:,}" for price in prices]))
    table = Table(["", *(run.name for run in runs)], rows, numbers=True)
    return Section("FLOPs of a policy step", pictures=[picture], tables=[table])


def settings(runs: Sequence[Run]) -> Section:
    """The configs side by side."""
    told = [
        dict(leaves({name: part for name, part in run.config.items() if name not in NOT_SETTINGS}))
        for run in runs
    ]
    names = list(dict.fromkeys(name for settings in told for name in settings))
    rows = [_side_by_side(name, [settings.get(name, "") for settings in told]) for name in names]
    words = "" if len(runs) == 1 else "Settings in which the runs differ are marked."
    return Section(
        "Settings", words, tables=[Table(["", *(run.name for run in runs)], rows, numbers=False)], folded=True
    )


def made_with(runs: Sequence[Run], now: Mapping[str, str], commit: Mapping[str, Any] | None) -> Section:
    """Versions and commits of the trainings, and of this page."""
    told = [_mapping(run.config.get("versions")) for run in runs] + [now]
    commits = [_mapping(run.config.get("git")) for run in runs] + [commit or {}]
    rows = [_side_by_side("commit", [_commit(one) for one in commits])]
    for name in dict.fromkeys(name for versions in told for name in versions):
        rows.append(_side_by_side(name, [str(versions.get(name, "")) for versions in told]))
    head = ["", *(f"training of {run.name}" for run in runs), "this page"]
    words = "Versions that are not the same in all columns are marked."
    return Section("Versions", words, tables=[Table(head, rows, numbers=False)], folded=True)


def _side_by_side(name: str, cells: list[str]) -> Row:
    return Row(name, cells, differs=len(set(cells)) > 1)


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _commit(git: Mapping[str, Any]) -> str:
    changed = " with changes" if git.get("modified") else ""
    return f"{str(git['commit'])[:12]}{changed}" if "commit" in git else "not known"


def _interval(played: Evaluation) -> str:
    """Wilson's, of a share."""
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
