"""FLOPs of runs, bundles and mechanisms as rows of a table."""

from __future__ import annotations

import csv as csv_format
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.bundles.bundle import MANIFEST, read_manifest
from robopolicy.costs.flops import COMPONENTS, OTHER, count_step
from robopolicy.envs.registry import TASKS, check_name, task_class
from robopolicy.experiments.default_policies import OPTIONS, canonical_spec, policy_config, policy_kind
from robopolicy.experiments.output_files import check_file, check_picture
from robopolicy.experiments.runs import find_run, load, task_of
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import PolicyConfig, blank_policy, restore
from robopolicy.training.capacity import check_fits
from robopolicy.writing import write_atomically

EXACT = "softmax"
COMPARED = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=256)")
Row = dict[str, Any]


class Subject(NamedTuple):
    """A policy to count.

    Attributes:
      name: of the run or the bundle; None for a policy that is neither.
      task: its task.
      config: its settings.
      price: the count in a bundle's manifest, as `FlopCount.summary` returns it; None otherwise.
    """

    name: str | None
    task: str
    config: PolicyConfig
    price: dict[str, Any] | None


def subject(name: str) -> Subject:
    """The run or the bundle called `name`.

    Raises FileNotFoundError or ValueError, in one line, where it is neither, damaged, or of no known task.
    """
    folder = Path(name)
    if (folder / MANIFEST).is_file():
        manifest = read_manifest(folder)
        try:
            config = restore(manifest["policy"])
        except ValueError as error:
            raise ValueError(f"bundle {name!r}: {error}") from error
        kind, run, price = "bundle", manifest["run"], manifest["flops"]
    else:
        try:
            find_run(name)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}, or the folder of a bundle") from error
        trained = load(name)
        kind, run, config, price = "run", trained.run, trained.config, None
    task = task_of(name, run, kind)
    return Subject(name, task, config, price)


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
    """A row for each policy, with its own mechanism, with each of `attention`, and with exact softmax.

    Args:
      policies: names of runs and bundles. If it is empty, the policy that `task` trains is counted.
      attention: specs of mechanisms; default, without `policies`: `COMPARED`.
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
    specs = [canonical_spec(spec) for spec in attention]
    if task is not None:
        check_name(task)
    if policies:
        base = None
        for name, value in settings.items():
            raise ValueError(f"{name} is {value!r}: {policies[0]!r} has its own, so give one or the other")
        named = [subject(name) for name in policies]
        for one in named:
            if task not in (None, one.task):
                raise ValueError(f"task is {task!r}: {one.name!r} was trained on {one.task!r}")
    else:
        task, named = task or next(iter(TASKS)), []
        for name, value in settings.items():
            if name not in OPTIONS[policy_kind(task)]:
                raise ValueError(f"{name} is {value!r}: the policy of {task} has no such setting")
        base = Subject(None, task, policy_config(EXACT, task, **settings), None)
        specs = specs or [canonical_spec(spec) for spec in COMPARED]
    rows = [row(one, per_second) for one in with_specs(named, base, specs)]
    if csv is not None:
        write_atomically(csv, comma_separated(rows))
    if picture is not None:
        _draw(picture, rows)
    return rows


def _draw(path: Path, rows: list[Row]) -> None:
    from robopolicy.viz.stacked_bars import stacked_bars  # needs matplotlib, which is an extra

    alike = len({(row.get("variant", row["head"]), row["tokens"]) for row in rows}) == 1
    bars = []
    for each in rows:
        settings = f"{each.get('variant', each['head'])}, {each['tokens']} tokens"
        lines = [each["policy"], each["attention"] + ("" if alike else f" ({settings})")]
        times = each.get("control_rate", 1)
        sizes = {part: times * flops for part, flops in each["by_component"].items()}
        bars.append((": ".join(line for line in lines if line), sizes))
    title, unit = "FLOPs of one policy step", "FLOPs"
    if "control_rate" in rows[0]:
        title, unit = "FLOPs of a policy in a second", "FLOPs a second"
    stacked_bars(path, bars, (*COMPONENTS, OTHER), f"{title} ({settings})" if alike else title, unit)


def with_specs(named: Sequence[Subject], base: Subject | None, specs: Sequence[str]) -> Iterator[Subject]:
    """`named`, then the policies of each of their settings, or of `base`, with `specs` and with softmax.

    What has been counted already is left out.
    """
    yield from named
    seen = {(s.task, s.config) for s in named}
    for start in dict.fromkeys((s.task, replace(s.config, attention=EXACT)) for s in [*named, base] if s):
        for spec in (*specs, EXACT):
            task, config = start[0], replace(start[1], attention=spec)
            if (task, config) not in seen:
                seen.add((task, config))
                yield Subject(None, task, config, None)


def price(config: PolicyConfig) -> int:
    """FLOPs of a policy step. Raises ValueError where a step needs more memory than this machine has."""
    counted = count_step(blank_policy(config))
    check_fits(f"attention is {config.attention!r}", counted.peak_bytes, "a policy step")
    return counted.total


def row(subject: Subject, per_second: bool) -> Row:
    """What a subject costs, a step or also a second."""
    config, policy = subject.config, blank_policy(subject.config)
    price = count_step(policy).summary() if subject.price is None else subject.price
    settings = {f.name: getattr(config, f.name) for f in fields(config)}
    result: Row = {
        "policy": subject.name,
        "task": subject.task,
        "attention": config.attention,
        **{name: settings[name] for name in ("variant", "head") if name in settings},
        "tokens": config.tokens,
        "parameters": parameter_count(policy),
        **price,
    }
    if per_second:
        rate = task_class(subject.task).rate
        result |= {"control_rate": rate, "total_per_second": rate * price["total"]}
    return result


def parts(rows: Sequence[Row]) -> list[str]:
    """The parts that any of `rows` has, in the order in which a step passes them."""
    return [name for name in (*COMPONENTS, OTHER) if any(name in row["by_component"] for row in rows)]


def table(rows: Sequence[Row]) -> str:
    """A column a row: FLOPs part by part, then what else there is to know."""
    settings = [f"{row.get('variant', row['head'])}, {row['tokens']} tokens" for row in rows]
    alike = len(set(settings)) == 1
    lines: list[tuple[str, list[str]]] = []
    if any(row["policy"] for row in rows):
        lines.append(("", [row["policy"] or "" for row in rows]))
    lines.append(("", [row["attention"] for row in rows]))
    if not alike:
        lines.append(("", settings))
    lines += [(part, [f"{row['by_component'].get(part, 0):,}" for row in rows]) for part in parts(rows)]
    lines.append(("total", [f"{row['total']:,}" for row in rows]))
    lines.append(("against the first", [f"{row['total'] / rows[0]['total']:.2f}x" for row in rows]))
    if "control_rate" in rows[0]:
        lines.append(("FLOPs a second", [f"{row['total_per_second']:,}" for row in rows]))
        lines.append(("steps a second", [f"{row['control_rate']}" for row in rows]))
    lines.append(("bytes moved", [f"{row['traffic_bytes']:,}" for row in rows]))
    lines.append(("bytes at the peak", [f"{row['peak_bytes']:,}" for row in rows]))
    widths = [max(12, *(len(cells[i]) for _, cells in lines)) for i in range(len(rows))]
    first = max(len(title) for title, _ in lines)
    text = [f"FLOPs of one policy step ({settings[0]})" if alike else "FLOPs of one policy step"]
    for title, cells in lines:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        text.append("  ".join([title.ljust(first), *padded]).rstrip())
    return "\n".join(text)


def comma_separated(rows: Sequence[Row]) -> str:
    """CSV: a line a row, a column a part, a class and a number; what a row does not have is empty or zero."""
    texts = ("policy", "task", "attention", "variant", "head")
    numbers = ["total", "traffic_bytes", "peak_bytes"]
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
