"""Learning curves of runs; runs that differ only in their seeds are one curve."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robopolicy.experiments.output_files import check_picture
from robopolicy.experiments.run_table import flops_of
from robopolicy.experiments.runs import find_run, policy_in, task_of
from robopolicy.experiments.trainings import (
    apart,
    leaves,
    search_settings,
    setting_name,
    trainer_of,
    training,
)
from robopolicy.naming import one_of
from robopolicy.policies.catalogue import describe
from robopolicy.policies.controls import label
from robopolicy.settings import is_finite
from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy
from robopolicy.training.metrics import read
from robopolicy.training.run_status import TRAINERS

if TYPE_CHECKING:
    from robopolicy.viz.curves import Panel, Points

Record = dict[str, Any]

KINDS = {name: trainer.counter for name, trainer in TRAINERS.items()}  # the counter of each trainer's records
ALONG = {"es": ("generation", "episodes", "seconds", "flops"), "bc": ("step", "seconds")}
AXES = {
    "generation": "generation",
    "step": "step",
    "episodes": "training episodes",
    "seconds": "seconds of training",
    "flops": "FLOPs of all policy steps in training",
}
FURTHEST = 1e300  # value on an axis; the axis extends beyond it


class Series(NamedTuple):
    """A logged quantity.

    Attributes:
      name: its key in the log.
      title: its name for people.
      is_share: whether it lies in [0, 1].
      staged: whether it depends on the curriculum's environment at the time.
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
    """The log of a run: its name, its trainer (`es` or `bc`), its config and its records."""

    name: str
    kind: str
    config: dict[str, Any]
    records: list[Record]

    @property
    def attention(self) -> str:
        """The mechanism or control of its policy."""
        policy = self.config["policy"]
        return label(policy["attention"], policy["encoder"])

    @property
    def seed(self) -> Any:
        """The seed of its training."""
        return self.config[self.kind].get("seed")

    @property
    def settings(self) -> dict[str, str]:
        """All settings that its training depends on, except its seed, as text by path."""
        return {**dict(leaves(self.config["policy"], "policy")), **search_settings(self.config)}


class Group(NamedTuple):
    """Runs that differ only in their seeds, and the settings that distinguish them from other groups."""

    label: str
    runs: list[Run]


def plot(names: Sequence[str], out: Path, by: str | None = None) -> dict[str, Any]:
    """Draw the learning curves of runs; runs that differ only in their seeds are one curve.

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
    kind, task = runs[0].kind, runs[0].config["task"]
    along = KINDS[kind] if by is None else one_of("by", by, ALONG[kind])
    grouped = groups(runs)
    drawn = panels(grouped, along)
    title = f"{task}: {grouped[0].label}" if len(grouped) == 1 else task
    learning_curves(out, list(drawn.values()), AXES[along], title)
    curves = [_summary(group, number, drawn) for number, group in enumerate(grouped)]
    return {"out": str(out), "task": task, "by": along, "curves": curves}


def _summary(group: Group, number: int, drawn: Mapping[str, Panel]) -> dict[str, Any]:
    """Means over the runs of a curve, and the standard deviation between their last values."""
    series = {}
    for name, panel in drawn.items():
        values = [y for _, y in panel.curves[number].runs]
        if values:
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


def logged(name: str) -> Run:
    """The log of a run, whichever of its policies `name` selects.

    Raises FileNotFoundError or ValueError, in one line, without numbers to draw, and for an ending of `name`
    that selects no policy.
    """
    path, which = find_run(name)
    folder = RunFolder(path)
    config = folder.config()
    if which != "last":  # a run in progress may have no checkpoint yet
        load_policy(path, which)
    task_of(name, config)
    policy, kind = config.get("policy"), trainer_of(config)
    if kind is None or not isinstance(policy, dict) or "attention" not in policy:
        raise CheckpointError(f"{str(folder.config_path)!r} describes no training: this is no run")
    counter = KINDS[kind]
    records = read(folder.metrics_path, counter)
    for before, after in pairwise(records):
        if after[counter] < before[counter]:
            raise CheckpointError(
                f"{str(folder.metrics_path)!r} goes from {counter} {before[counter]} back to {after[counter]}"
            )
    run = Run(name, kind, {**config, "policy": describe(policy_in(folder.path, config))}, records)
    if not any(_values(run, series.name) for series in SERIES[kind]):
        raise ValueError(f"run is {name!r}: it has logged nothing yet")
    return run


def all_logged(names: Sequence[str]) -> list[Run]:
    """The logs of runs that can be drawn together.

    Raises ValueError for no run, for a run that occurs twice, and for several tasks or trainers.
    """
    if not names:
        raise ValueError("runs is empty: it must be one or more")
    if len({find_run(name)[0].resolve() for name in names}) < len(names):
        raise ValueError(f"runs is {', '.join(names)}: each may occur once")
    runs = [logged(name) for name in names]
    first = runs[0]
    for run in runs[1:]:
        for what, value, other in (
            ("trained by", run.kind, first.kind),
            ("trained on", run.config["task"], first.config["task"]),
        ):
            if value != other:
                raise ValueError(
                    f"runs has {first.name!r}, {what} {other}, and {run.name!r}, {what} {value}: "
                    "their curves cannot be compared"
                )
    return runs


def groups(runs: Sequence[Run]) -> list[Group]:
    """`runs` grouped by their settings except seeds, in order; no group has a seed twice."""
    members: dict[tuple[str, int], list[Run]] = {}
    trainings = [training(run.name, run.config) for run in runs]
    for run, copies in zip(runs, apart([run.name for run in runs], trainings), strict=True):
        members.setdefault((json.dumps(run.settings, sort_keys=True), copies), []).append(run)
    together = list(members.values())
    settings = [group[0].settings for group in together]
    alike: dict[str, list[dict[str, str]]] = {}
    for group, own in zip(together, settings, strict=True):
        alike.setdefault(group[0].attention, []).append(own)
    return [
        Group(group[0].attention + _difference(own, alike[group[0].attention], group[0]), group)
        for group, own in zip(together, settings, strict=True)
    ]


def _difference(own: dict[str, str], alike: Sequence[dict[str, str]], run: Run) -> str:
    """The settings, or the name of a run, that distinguish a group from those with its mechanism."""
    if len(alike) == 1:
        return ""
    paths = sorted({path for settings in alike for path in settings})
    differ = [path for path in paths if len({settings.get(path) for settings in alike}) > 1]
    if not differ:
        return f" ({run.name})"
    if len(differ) > 2:
        return f" ({Path(run.name).name})"
    texts = (f"{setting_name(path)} {own.get(path, 'not set')}" for path in differ)
    return f" ({', '.join(texts)})"


def panels(grouped: Sequence[Group], along: str) -> dict[str, Panel]:
    """The panel of each quantity that any run has logged, over `along`."""
    from robopolicy.viz.curves import Curve, Panel

    axes = {run.name: _axis(run, along) for group in grouped for run in group.runs}
    for name, axis in axes.items():
        if max(axis) > FURTHEST:
            raise ValueError(f"by is {along!r}: {name!r} has logged numbers above {FURTHEST:g} for it")
    result = {}
    for series in SERIES[grouped[0].runs[0].kind]:
        curves = []
        for title, runs in grouped:
            points = [_points(run, series.name, axes[run.name]) for run in runs]
            changes = {x for run in runs for x in _changes(run, axes[run.name])} if series.staged else ()
            curves.append(Curve(title, [p for p in points if p is not None], sorted(changes)))
        if any(curve.runs for curve in curves):
            result[series.name] = Panel(series.title, curves, series.is_share)
    return result


def _axis(run: Run, along: str) -> list[float]:
    """The place of each record. Raises ValueError if the run has not logged it."""
    if along == KINDS[run.kind]:
        return [_number(run, record, along) or 0.0 for record in run.records]
    if run.kind == "bc":
        return list(accumulate((_number(run, r, "seconds") or 0.0 for r in run.records), max))
    name = {"episodes": "episodes", "seconds": "wall_seconds", "flops": "steps"}[along]
    if any(name not in record for record in run.records if record["generation"]):
        raise ValueError(f"by is {along!r}: {run.name!r} has logged no {name}")
    price = flops_of(run.config) if along == "flops" else 1
    return [price * total for total in accumulate(_number(run, r, name) or 0.0 for r in run.records)]


def _number(run: Run, record: Record, name: str) -> float | None:
    """A number of a record, infinite if it is not finite; None for a missing one.

    Raises ValueError for any other value.
    """
    value = record.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        where = f"{KINDS[run.kind]} {record[KINDS[run.kind]]}"
        raise ValueError(f"{name} is {value!r} in the log of {run.name!r}, {where}: it must be a number")
    return float(value) if is_finite(value) else math.inf


def _values(run: Run, name: str) -> list[tuple[int, float]]:
    """The finite numbers of a quantity, with the index of their record."""
    numbers = ((place, _number(run, record, name)) for place, record in enumerate(run.records))
    return [(place, v) for place, v in numbers if v is not None and v < math.inf]


def _points(run: Run, name: str, axis: Sequence[float]) -> Points | None:
    values = _values(run, name)
    if not values:
        return None
    return np.array([axis[place] for place, _ in values]), np.array([value for _, value in values])


def _changes(run: Run, axis: Sequence[float]) -> list[float]:
    """The places at which the curriculum moved to another environment."""
    staged = zip(axis, run.records, strict=True)
    stages = groupby(((x, r["environment"]) for x, r in staged if "environment" in r), key=lambda p: p[1])
    return [next(stage)[0] for _, stage in stages][1:]
