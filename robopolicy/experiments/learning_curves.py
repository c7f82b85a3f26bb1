"""What runs have logged, as curves: those that differ by their seeds alone are one."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robopolicy.experiments.run_table import flops_of
from robopolicy.experiments.runs import find_run, task_of
from robopolicy.naming import one_of
from robopolicy.training import bc, es
from robopolicy.training.checkpoint import CheckpointError, RunFolder
from robopolicy.training.metrics import read
from robopolicy.training.run_status import TRAINERS

if TYPE_CHECKING:
    from robopolicy.viz.curves import Panel, Points

Record = dict[str, Any]

KINDS = {name: trainer.counter for name, trainer in TRAINERS.items()}  # what numbers the records of each
ALONG = {"es": ("generation", "episodes", "seconds", "flops"), "bc": ("step", "seconds")}
AXES = {
    "generation": "generation",
    "step": "step",
    "episodes": "training episodes",
    "seconds": "seconds of training",
    "flops": "FLOPs of all policy steps in training",
}
FURTHEST = 1e300  # of an axis, which takes some room beyond
LARGEST = sys.float_info.max
NOT_SETTINGS = ("versions", "git", "command", "flops")  # of a config: where a run was made, and its price


class Series(NamedTuple):
    """Something that is logged: its name there, its title, and whether it is a share.

    `staged` is what a population does on the environment that the curriculum has come to.
    """

    name: str
    title: str
    is_share: bool = False
    staged: bool = False


SERIES = {
    "es": (
        Series("held_out/return", "return on held-out seeds"),
        Series("held_out/success", "success on held-out seeds", is_share=True),
        Series("return_mean", "population's mean return", staged=True),
        Series("success", "population's success", is_share=True, staged=True),
        Series("return_std", "spread of the population's returns", staged=True),
        Series("sigma", "sigma of the search"),
        Series("gradient_norm", "norm of the gradient"),
        Series("episodes_per_second", "episodes a second", staged=True),
    ),
    "bc": (
        Series("loss", "loss"),
        Series("validation/loss", "loss on episodes set aside"),
        Series("validation/action_error", "error of actions, episodes set aside"),
        Series("gradient_norm", "norm of the gradient"),
        Series("images_per_second", "images a second"),
        Series("rollout/return", "return in the simulator"),
        Series("rollout/success", "success in the simulator", is_share=True),
    ),
}


class Run(NamedTuple):
    """A run as it was named, its config and its log; `kind` is how it was trained."""

    name: str
    kind: str
    config: dict[str, Any]
    records: list[Record]

    @property
    def attention(self) -> str:
        """The mechanism of its policy."""
        return str(self.config["policy"]["attention"])

    @property
    def seed(self) -> Any:
        """What it was trained with."""
        return self.config[self.kind].get("seed")


class Group(NamedTuple):
    """Runs that differ by their seeds alone, under what tells them from other groups."""

    label: str
    runs: list[Run]


def logged(name: str) -> Run:
    """The log of RUN. Raises FileNotFoundError or ValueError, in one line, where it holds nothing to draw."""
    folder = RunFolder(find_run(name)[0])
    config = folder.config()
    task_of(name, config)
    policy = config.get("policy")
    kinds = [kind for kind in KINDS if isinstance(config.get(kind), dict)]
    if len(kinds) != 1 or not isinstance(policy, dict) or "attention" not in policy:
        raise CheckpointError(f"{str(folder.config_path)!r} describes no training: this is no run")
    (kind,) = kinds
    counter = KINDS[kind]
    records = read(folder.metrics_path, counter)
    for before, after in pairwise(records):
        if after[counter] < before[counter]:
            raise CheckpointError(
                f"{str(folder.metrics_path)!r} goes from {counter} {before[counter]} back to {after[counter]}"
            )
    run = Run(name, kind, config, records)
    if not any(_values(run, series.name) for series in SERIES[kind]):
        raise ValueError(f"run is {name!r}: it has logged nothing yet")
    return run


def all_logged(names: Sequence[str]) -> list[Run]:
    """The logs of runs that can be drawn together.

    Raises ValueError for none, for one that comes twice, and for runs of several tasks or kinds of training.
    """
    if not names:
        raise ValueError("RUN is given as nothing: it must be one or more")
    folders: list[Path] = []
    for name in names:
        folders.append(find_run(name)[0].resolve())
        if folders[-1] in folders[:-1]:
            raise ValueError(f"RUN is given as {', '.join(names)}: none may come twice")
    runs = [logged(name) for name in names]
    first = runs[0]
    for run in runs[1:]:
        for what, mine, other in (
            ("trained by", run.kind, first.kind),
            ("trained on", run.config["task"], first.config["task"]),
        ):
            if mine != other:
                raise ValueError(
                    f"RUN is given as {first.name!r}, {what} {other}, and {run.name!r}, {what} {mine}: "
                    "their curves have nothing in common"
                )
    return runs


def training(name: str, config: dict[str, Any]) -> str:
    """All that a run depends on but for its end, its seed included; its name where its config tells none."""
    kinds = [kind for kind in KINDS if isinstance(config.get(kind), dict)]
    if len(kinds) != 1 or config[kinds[0]].get("seed") is None:
        return name
    return json.dumps([_settings(kinds[0], config), config[kinds[0]]["seed"]], sort_keys=True)


def apart(names: Sequence[str], trainings: Sequence[str]) -> list[int]:
    """How many runs before each are of the same training: a copy is no other seed, and stands apart.

    Every one that does is told on stderr.
    """
    places = []
    for place, (name, told) in enumerate(zip(names, trainings, strict=True)):
        before = [names[n] for n in range(place) if trainings[n] == told]
        if before:
            print(f"{name} has the settings and the seed of {before[0]}, and stands apart", file=sys.stderr)
        places.append(len(before))
    return places


def groups(runs: Sequence[Run]) -> list[Group]:
    """`runs` by their settings but for seeds and ends, in the order given; none has two of one seed."""
    found: dict[tuple[str, int], list[Run]] = {}
    trainings = [training(run.name, run.config) for run in runs]
    for run, place in zip(runs, apart([run.name for run in runs], trainings), strict=True):
        settings = json.dumps(_settings(run.kind, run.config), sort_keys=True)
        found.setdefault((settings, place), []).append(run)
    told = [dict(leaves(json.loads(settings))) for settings, _ in found]
    together = list(found.values())
    labels = [runs[0].attention for runs in together]
    alike = [[n for n, other in enumerate(labels) if other == label] for label in labels]
    return [
        Group(label + _difference(told, number, same, together[number]), together[number])
        for number, (label, same) in enumerate(zip(labels, alike, strict=True))
    ]


def _settings(kind: str, config: dict[str, Any]) -> dict[str, Any]:
    """What a run's curve depends on, but for its seed."""
    may_change = es.MAY_CHANGE if kind == "es" else bc.MAY_CHANGE
    settings = {name: value for name, value in config.items() if name not in NOT_SETTINGS}
    loose = ("seed", *may_change)
    settings[kind] = {n: v for n, v in settings[kind].items() if n not in loose}
    return settings


def leaves(tree: Any, path: str = "") -> list[tuple[str, str]]:
    """The settings of a config and their places in it, as people write them."""
    if isinstance(tree, list) and not any(isinstance(entry, dict | list) for entry in tree):
        return [(path, ", ".join(_plain(entry) for entry in tree))]
    if not isinstance(tree, dict):
        return [(path, _plain(tree))]
    return [leaf for name, branch in tree.items() for leaf in leaves(branch, f"{path}/{name}".strip("/"))]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _difference(told: list[dict[str, str]], number: int, alike: list[int], runs: list[Run]) -> str:
    """What tells a group from others with its mechanism, if there are any: settings, or the name of a run."""
    if len(alike) == 1:
        return ""
    paths = sorted({path for other in alike for path in told[other]})
    differ = [path for path in paths if len({told[other].get(path) for other in alike}) > 1]
    if not differ:
        return f" ({runs[0].name})"
    if len(differ) > 2:
        return f" ({Path(runs[0].name).name})"
    words = (f"{path.split('/')[-1]} {told[number].get(path, 'not set')}" for path in differ)
    return f" ({', '.join(words)})"


def panels(grouped: Sequence[Group], along: str) -> dict[str, Panel]:
    """What any of the runs has logged, by its name in the log, over `along`."""
    from robopolicy.viz.curves import Curve, Panel

    axes = {run.name: _axis(run, along) for group in grouped for run in group.runs}
    for name, axis in axes.items():
        if max(axis) > FURTHEST:
            raise ValueError(f"by is {along!r}: {name!r} has logged numbers for it that cannot be")
    found = {}
    for series in SERIES[grouped[0].runs[0].kind]:
        curves = []
        for label, runs in grouped:
            points = [_points(run, series.name, axes[run.name]) for run in runs]
            changes = [x for run in runs for x in _changes(run, axes[run.name])] if series.staged else []
            curves.append(Curve(label, [p for p in points if p is not None], sorted(set(changes))))
        if any(curve.runs for curve in curves):
            found[series.name] = Panel(series.title, curves, series.is_share)
    return found


def along_of(runs: Sequence[Run], by: str | None) -> str:
    """What the curves of `runs` run over. Raises ValueError where they do not log that."""
    kind = runs[0].kind
    return KINDS[kind] if by is None else one_of("by", by, ALONG[kind])


def _axis(run: Run, along: str) -> list[float]:
    """The place of each record. Raises ValueError where the run has not logged what it takes."""
    if along == KINDS[run.kind]:
        return [_number(run, record, along) or 0.0 for record in run.records]
    if run.kind == "bc":
        return list(accumulate((_number(run, r, "seconds") or 0.0 for r in run.records), max))
    name = {"episodes": "episodes", "seconds": "wall_seconds", "flops": "steps"}[along]
    played = [r for r in run.records if r["generation"]]
    if any(name not in record for record in played):
        raise ValueError(f"by is {along!r}: {run.name!r} has logged no {name}")
    each = [_number(run, record, name) or 0.0 for record in run.records]
    price = flops_of(run.config) if along == "flops" else 1
    return [price * total for total in accumulate(each)]


def _number(run: Run, record: Record, name: str) -> float | None:
    """A number of a record, infinite where it is not finite; None where there is none.

    Raises ValueError where something else stands there.
    """
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        where = f"{KINDS[run.kind]} {record[KINDS[run.kind]]}"
        raise ValueError(f"{name} is {value!r} in the log of {run.name!r}, {where}: it must be a number")
    return float(value) if abs(value) <= LARGEST else math.inf


def _values(run: Run, name: str) -> list[tuple[int, float]]:
    """Finite numbers that were logged, with the place of their record."""
    numbers = ((place, _number(run, record, name)) for place, record in enumerate(run.records))
    return [(place, v) for place, v in numbers if v is not None and v < math.inf]


def _points(run: Run, name: str, axis: Sequence[float]) -> Points | None:
    values = _values(run, name)
    if not values:
        return None
    return np.array([axis[place] for place, _ in values]), np.array([value for _, value in values])


def _changes(run: Run, axis: Sequence[float]) -> list[float]:
    """Where the curriculum went on to another environment."""
    staged = zip(axis, run.records, strict=True)
    known = [(x, record["environment"]) for x, record in staged if "environment" in record]
    firsts = [next(stage)[0] for _, stage in groupby(known, key=lambda place: place[1])]
    return firsts[1:]
