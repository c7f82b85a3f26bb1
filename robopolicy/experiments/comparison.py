"""Runs compared on the same unseen episodes: returns against FLOPs, latency and parameters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import false_discovery_control

from robopolicy.costs.flops import count_step
from robopolicy.envs.registry import task_class
from robopolicy.experiments.environments import Environment, others_of
from robopolicy.experiments.evaluation import evaluate
from robopolicy.experiments.run_table import runs_below
from robopolicy.experiments.runs import check_no_baseline, config_of, find_run, load, played_on, task_of
from robopolicy.experiments.statistics import FEWEST, has_verdict, interval, permutation_p, verdict
from robopolicy.experiments.trainings import apart, search_settings, training
from robopolicy.naming import one_line
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import PolicyConfig, blank_policy

Row = dict[str, Any]


def runs_in(names: Sequence[str]) -> list[str]:
    """`names`, with the runs below a folder, such as a grid's, in place of that folder."""
    result: list[str] = []
    for name in names:
        folder = Path(name)
        may_hold_runs = bool(name) and folder.is_dir() and not (folder / "config.json").is_file()
        below = runs_below(folder) if may_hold_runs else []
        # With the folder, since "./random" is a run, and "random" a baseline.
        result += sorted(os.path.join(path.parent, path.name) for _, path in below) or [name]
    return result


def compared_on(
    names: Sequence[str],
    engine: str | None,
    preset: str | None,
    episode_seconds: float | None,
    renderer: str | None = None,
    robot: str | None = None,
) -> Environment:
    """The environment in which runs of one task are compared.

    Raises ValueError or FileNotFoundError, in one line, for fewer than two runs, for a run that occurs twice
    or has the name of a baseline, and for runs of several tasks.
    """
    if len({_place(name) for name in names}) < max(2, len(names)):
        raise ValueError(f"runs is {', '.join(names) or 'empty'}: it must be two or more, each of them once")
    tasks: dict[str, str] = {}
    for name in names:
        tasks.setdefault(task_of(name, config_of(find_run(name)[0])), name)
    if len(tasks) > 1:
        trained_on = ", ".join(f"{name!r} on {task!r}" for task, name in tasks.items())
        raise ValueError(f"runs were trained as {trained_on}: all must be of one task")
    (task,) = tasks
    check_no_baseline(names, task)
    others = others_of(robot=robot)
    return played_on(names, task, engine, preset, episode_seconds, renderer, others)


def compare(
    names: Sequence[str],
    environment: Environment,
    seeds: Sequence[int],
    *,
    on_begin: Callable[[], None] = lambda: None,
    on_episode: Callable[[], None] = lambda: None,
) -> list[Row]:
    """A row for each policy, the fewest FLOPs first; see `draw_comparison` for a picture.

    Runs that differ in nothing but their seeds count as one policy with several trainings. Several policies
    of one training have a row each, since they have no spread between seeds.
    """
    groups = policies(names)
    played = {
        name: evaluate(name, environment, seeds, on_begin=on_begin, on_episode=on_episode)
        for _, group in groups
        for name in group
    }
    results = {name: evaluation.summary() for name, evaluation in played.items()}
    return rows_of(groups, results, {name: evaluation.latency for name, evaluation in played.items()})


def draw_comparison(path: Path, rows: Sequence[Row], title: str) -> None:
    """Draw return against FLOPs of `rows` of `compare` to a .png or .svg; needs matplotlib, an extra."""
    from robopolicy.viz.trade_off import trade_off

    trade_off(path, titled(rows), title)


def titled(rows: Sequence[Row]) -> list[Row]:
    """`rows` with their `titles` as labels."""
    return [row | {"label": title} for row, title in zip(rows, titles(rows), strict=True)]


def policies(names: Sequence[str]) -> list[tuple[PolicyConfig, list[str]]]:
    """Runs grouped by the settings of their policies and trainings, in order.

    A group has no training twice: a copy of a run has a group of its own. It does not mix last policies, best
    ones and those of a checkpoint. Raises ValueError or FileNotFoundError, in one line, for a name without a
    policy.
    """
    loaded = [load(name) for name in names]
    places = [_place(name) for name in names]
    trainings = [
        f"{training(str(folder), each.run)} {which}"
        for (folder, which), each in zip(places, loaded, strict=True)
    ]
    groups: dict[tuple[PolicyConfig, str, str, int], list[str]] = {}
    counts = apart(names, trainings)
    for name, each, (_, which), copies in zip(names, loaded, places, counts, strict=True):
        settings = json.dumps(search_settings(each.run), sort_keys=True)
        groups.setdefault((each.config, settings, which, copies), []).append(name)
    return [(config, group) for (config, *_), group in groups.items()]


def rows_of(
    groups: Sequence[tuple[PolicyConfig, Sequence[str]]],
    results: Mapping[str, Mapping[str, Any]],
    latencies: Mapping[str, float | None],
) -> list[Row]:
    """A row for each group of `policies`, the fewest FLOPs first.

    Args:
      groups: settings of a policy, and the names of its runs.
      results: for each name, `Evaluation.summary` on the same episodes.
      latencies: for each name, the median time of a policy call (s), if it was measured.

    Raises ValueError, in one line, for a return that is not finite in a group of several runs.
    """
    rows: list[Row] = []
    for config, group in groups:
        of_group = [results[name] for name in group]
        for name, result in zip(group, of_group, strict=True):
            if len(group) >= FEWEST and not np.isfinite(result["returns"]).all():
                raise ValueError(f"{name!r} has returns that are not finite, so its policy has no interval")
        times = [time for name in group if (time := latencies.get(name)) is not None]
        means = [result["return_mean"] for result in of_group]
        task = of_group[0]["task"]
        outcomes = ("success_rate", *(outcome.mean for outcome in task_class(task).outcomes))
        policy, returns = blank_policy(config), np.array([result["returns"] for result in of_group])
        rows.append(
            {
                "task": task,
                "attention": config.attention,
                "encoder": config.encoder,
                "variant": getattr(config, "variant", None),  # which not every kind of policy has
                "label": config.label,
                "controls": [control.label for control in config.controls()],
                "runs": list(group),
                "flops": count_step(policy).total,
                "parameters": parameter_count(policy),
                "latency_ms": 1e3 * float(np.median(times)) if times else None,
                "episodes": returns.shape[1],
                "return_mean": float(np.mean(means)),
                # Between seeds of training.
                "return_spread": float(np.std(means, ddof=1)) if len(means) > 1 else None,
                # Interquartile mean and its 95 % interval over seeds of training and courses.
                "return_interval": interval(returns)._asdict() if len(group) >= FEWEST else None,
                "episode_returns": returns.tolist(),
                "return_std": float(np.mean([result["return_std"] for result in of_group])),
                **{name: float(np.mean([result[name] for result in of_group])) for name in outcomes},
                "returns": means,
            }
        )
    return sorted(rows, key=lambda row: row["flops"])


def missing_controls(rows: Sequence[Row]) -> list[str]:
    """Labels of the controls of policies in `rows` that have no row."""
    present = {row["label"] for row in rows}
    return [name for name in dict.fromkeys(chain(*(row["controls"] for row in rows))) if name not in present]


def titles(rows: Sequence[Row]) -> list[str]:
    """The label of each row; of rows with one label, also the variant, or a run if they share that, too."""
    labels = [row["label"] for row in rows]
    precise = [f"{row['label']}, {row.get('variant')}" for row in rows]
    result = []
    for row, label, with_variant in zip(rows, labels, precise, strict=True):
        if labels.count(label) == 1:
            result.append(label)
        elif precise.count(with_variant) == 1:
            result.append(with_variant)
        else:
            result.append(one_line(f"{label} ({row['runs'][0]})"))
    return result


def verdicts(rows: Sequence[Row]) -> list[str]:
    """What `rows` of `compare` show of each two policies, in a line each.

    The p-values are corrected for all pairs with enough trainings by the method of Benjamini and Hochberg: of
    the pairs that a table calls different, at most one in twenty is expected to be of equals. A policy of one
    training has no verdict, which the last line says.
    """
    several = [
        (title, np.array(row["episode_returns"]))
        for row, title in zip(rows, titles(rows), strict=True)
        if len(row["runs"]) >= FEWEST
    ]
    pairs = list(combinations(several, 2))
    p_values = [permutation_p(mine, theirs) for (_, mine), (_, theirs) in pairs]
    tested = [number for number, (one, other) in enumerate(pairs) if has_verdict(one[1], other[1])]
    corrected = false_discovery_control([p_values[number] for number in tested])
    for number, p in zip(tested, corrected, strict=True):
        p_values[number] = float(p)
    lines = []
    for ((one, mine), (other, theirs)), p in zip(pairs, p_values, strict=True):
        found = verdict(one, mine, other, theirs, p=p)
        gap = found.difference
        lines.append(
            f"{one} against {other}: {found.words}; "
            f"difference {gap.value:.2f} ({gap.low:.2f} to {gap.high:.2f}), "
            f"the first is better in {found.improvement:.0%} of episodes (ties count half)"
        )
    if len(tested) > 1:
        lines.append(f"p is corrected for {len(tested)} pairs (Benjamini and Hochberg)")
    if len(several) < len(rows):
        lines.append(
            "no verdict on policies of one training: seeds of training differ, so several are needed"
        )
    return lines


def _place(name: str) -> tuple[Path, str]:
    """A run's resolved folder, and the name of one of its policies."""
    folder, which = find_run(name)
    return folder.resolve(), which
