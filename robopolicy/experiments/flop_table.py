"""FLOPs of runs, bundles and mechanisms as rows of a table."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.bundles.bundle import MANIFEST, read_manifest
from robopolicy.costs.flops import COMPONENTS, OTHER, count_step
from robopolicy.costs.memory import state_bytes
from robopolicy.envs.registry import TASKS, check_name, task_class
from robopolicy.experiments.default_policies import OPTIONS, canonical_label, policy_config, policy_kind
from robopolicy.experiments.output_files import check_file, check_picture
from robopolicy.experiments.runs import find_run, load, task_of
from robopolicy.experiments.tables import aligned
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import PolicyConfig, blank_policy, restore
from robopolicy.policies.controls import NAMED_ENCODERS, NO_ATTENTION, NO_VISION, attending, from_label
from robopolicy.training.capacity import check_fits
from robopolicy.writing import write_atomically

EXACT = "softmax"
COMPARED = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=256)")
Row = dict[str, Any]


class Subject(NamedTuple):
    """A policy to count.

    Attributes:
      name: name of the run or the bundle; None for another policy.
      task: its task.
      config: its settings.
      price: `FlopCount.summary` from a bundle's manifest; None for other policies.
    """

    name: str | None
    task: str
    config: PolicyConfig
    price: dict[str, Any] | None


def subject(name: str) -> Subject:
    """The run or the bundle called `name`.

    Raises FileNotFoundError or ValueError, in one line, for a missing or damaged one, or an unknown task.
    """
    folder = Path(name)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        try:
            config = restore(manifest["policy"])
        except ValueError as error:
            raise ValueError(f"bundle {name!r}: {error}") from error
        return Subject(name, task_of(name, manifest, "bundle"), config, manifest["flops"])
    try:
        find_run(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}, or the folder of a bundle") from error
    trained = load(name)
    return Subject(name, task_of(name, trained.run), trained.config, None)


def count_rows(
    policies: Sequence[str],
    attention: Sequence[str] = (),
    *,
    task: str | None = None,
    settings: Mapping[str, Any] | None = None,
    per_second: bool = False,
    csv: Path | None = None,
    picture: Path | None = None,
) -> list[Row]:
    """Rows for each policy: its own mechanism, each of `attention`, exact softmax, and the controls.

    Args:
      policies: names of runs and bundles. If it is empty, the policy that `task` trains is counted.
      attention: specs of mechanisms, and labels of controls; default, without `policies`: `COMPARED`.
      task: default: stepping stones. Must be the task of all `policies`.
      settings: settings of the policy that `task` trains.
      per_second: add FLOPs a second, at the control rate of the task.
      csv: table to write.
      picture: stacked bars to draw, .png or .svg.

    Raises ValueError or FileNotFoundError, in one line, for bad input.
    """
    check_file("csv", csv, (".csv",))
    check_picture("picture", picture)
    settings = settings or {}
    specs = [canonical_label(spec) for spec in attention]
    if task is not None:
        check_name(task)
    subjects = [subject(name) for name in policies]
    if subjects:
        for name, value in settings.items():
            raise ValueError(f"{name} is {value!r}: {policies[0]!r} has its own, so give one or the other")
        for one in subjects:
            if task not in (None, one.task):
                raise ValueError(f"task is {task!r}: {one.name!r} was trained on {one.task!r}")
        bases = subjects
    else:
        task = task or next(iter(TASKS))
        for name, value in settings.items():
            if name not in OPTIONS[policy_kind(task)]:
                raise ValueError(f"{name} is {value!r}: the policy of {task} has no such setting")
        encoder, mechanism = settings.get("encoder"), EXACT
        if encoder in NAMED_ENCODERS:
            for spec in specs:
                if spec == NO_VISION or from_label(spec)[1]:
                    raise ValueError(f"encoder is {encoder!r}: leave it out with attention {spec!r}")
            mechanism = next((spec for spec in specs if spec != NO_ATTENTION), NO_ATTENTION)
        is_control = mechanism == NO_ATTENTION
        config = policy_config(mechanism, task, **settings)
        first = Subject(None, task, config, None)
        bases, subjects = [first], [first] if is_control else []
        specs = specs or [canonical_label(spec) for spec in COMPARED]
    # Each combination of settings with all specs and controls, without those that are counted already.
    counted = {(s.task, s.config) for s in subjects}
    for base in dict.fromkeys((s.task, attending(s.config, EXACT)) for s in bases):
        for config in (*(_labelled(base[1], spec) for spec in (*specs, EXACT)), *base[1].controls()):
            if (base[0], config) not in counted:
                counted.add((base[0], config))
                subjects = [*subjects, Subject(None, base[0], config, None)]
    rows = [row(one, per_second) for one in subjects]
    if csv is not None:
        write_atomically(csv, comma_separated(rows))
    if picture is not None:
        _draw(picture, rows)
    return rows


def _labelled(config: PolicyConfig, text: str) -> PolicyConfig:
    """The policy with this mechanism, or the control of `config` with this label, such as "all, cnn"."""
    controls = {control.label: control for control in config.controls()}
    if text in controls:
        return controls[text]
    if from_label(text)[1]:
        raise ValueError(f"attention is {text!r}: the controls of this policy are {'; '.join(controls)}")
    return attending(config, text)


def _labels(rows: Sequence[Row]) -> tuple[list[str], bool]:
    """Head and tokens of each row as text, and whether all are equal."""
    labels = [f"{row.get('variant', row['head'])}, {row['tokens']} tokens" for row in rows]
    return labels, len(set(labels)) == 1


def _draw(path: Path, rows: list[Row]) -> None:
    from robopolicy.viz.stacked_bars import stacked_bars  # needs matplotlib, which is an extra

    labels, alike = _labels(rows)
    bars = []
    for each, about in zip(rows, labels, strict=True):
        lines = [each["policy"], each["label"] + ("" if alike else f" ({about})")]
        rate = each.get("control_rate", 1)
        sizes = {part: rate * flops for part, flops in each["by_component"].items()}
        bars.append((": ".join(line for line in lines if line), sizes))
    title, unit = "FLOPs of one policy step", "FLOPs"
    if "control_rate" in rows[0]:
        title, unit = "FLOPs of a policy in a second", "FLOPs a second"
    stacked_bars(path, bars, (*COMPONENTS, OTHER), f"{title} ({labels[0]})" if alike else title, unit)


def price(config: PolicyConfig) -> int:
    """FLOPs of a policy step. Raises ValueError if a step needs more memory than this machine has."""
    counted = count_step(blank_policy(config))
    check_fits(f"attention is {config.label!r}", counted.peak_bytes, "a policy step")
    return counted.total


def row(subject: Subject, per_second: bool) -> Row:
    """The cost of a policy step, and with `per_second` also of a second."""
    config, policy = subject.config, blank_policy(subject.config)
    price = count_step(policy).summary() if subject.price is None else subject.price
    settings = {f.name: getattr(config, f.name) for f in fields(config)}
    result: Row = {
        "policy": subject.name,
        "task": subject.task,
        "attention": config.attention,
        "encoder": config.encoder,
        "label": config.label,
        **{name: settings[name] for name in ("variant", "head") if name in settings},
        "tokens": config.tokens,
        "parameters": parameter_count(policy),
        **price,
        "state_bytes": state_bytes(policy),
    }
    if per_second:
        rate = float(task_class(subject.task).rate)
        result |= {"control_rate": rate, "total_per_second": round(rate * price["total"])}
    return result


def parts(rows: Sequence[Row]) -> list[str]:
    """The parts that any of `rows` has, in the order of a step."""
    return [name for name in (*COMPONENTS, OTHER) if any(name in row["by_component"] for row in rows)]


def table(rows: Sequence[Row]) -> str:
    """Text with a column for each row: FLOPs part by part, then totals and memory."""
    labels, alike = _labels(rows)
    lines = [["", *(row["policy"] or "" for row in rows)]] if any(row["policy"] for row in rows) else []
    lines.append(["", *(row["label"].rjust(12) for row in rows)])  # the least width of a column
    if not alike:
        lines.append(["", *labels])
    lines += [[part, *(f"{row['by_component'].get(part, 0):,}" for row in rows)] for part in parts(rows)]
    lines.append(["total", *(f"{row['total']:,}" for row in rows)])
    lines.append(["against the first", *(f"{row['total'] / rows[0]['total']:.2f}x" for row in rows)])
    numbers = {"bytes moved": "traffic_bytes", "bytes at the peak": "peak_bytes"}
    if any(row["state_bytes"] for row in rows):
        numbers["bytes of the state"] = "state_bytes"
    if "control_rate" in rows[0]:
        lines.append(["FLOPs a second", *(f"{row['total_per_second']:,}" for row in rows)])
        lines.append(["steps a second", *(f"{row['control_rate']:g}" for row in rows)])
    lines += [[title, *(f"{row[name]:,}" for row in rows)] for title, name in numbers.items()]
    title = f"FLOPs of one policy step ({labels[0]})" if alike else "FLOPs of one policy step"
    return "\n".join([title, *aligned(lines)])


def comma_separated(rows: Sequence[Row]) -> str:
    """CSV with a line for each row; missing texts are empty and missing parts zero."""
    texts = ("policy", "task", "attention", "encoder", "variant", "head")
    numbers = ["total", "traffic_bytes", "peak_bytes", "state_bytes"]
    numbers += ["control_rate", "total_per_second"] if "control_rate" in rows[0] else []
    classes, components = list(rows[0]["by_class"]), parts(rows)
    file = io.StringIO()
    writer = csv_format.writer(file, lineterminator="\n")
    writer.writerow([*texts, "tokens", "parameters", *components, *numbers, *classes])
    for row in rows:
        cells = [row.get(name) for name in (*texts, "tokens", "parameters")]
        cells += [row["by_component"].get(part, 0) for part in components]
        cells += [row[name] for name in numbers]
        writer.writerow([*cells, *(row["by_class"][kind] for kind in classes)])
    return file.getvalue()
