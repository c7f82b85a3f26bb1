"""What runs, bundles and specs cost, as rows that say so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from robopolicy.envs.registry import task_class

if TYPE_CHECKING:
    from robopolicy.policies.catalogue import PolicyConfig

EXACT = "softmax"
Row = dict[str, Any]


class Subject(NamedTuple):
    """Something that has a price.

    Attributes:
      name: of the run or the bundle; None for a policy that is neither.
      task: what it does.
      config: its settings.
      price: what a bundle tells of itself, as `FlopCount.summary` gives it; None for what is yet to be
        counted.
    """

    name: str | None
    task: str
    config: PolicyConfig
    price: dict[str, Any] | None


def subject(name: str) -> Subject:
    """The run or the bundle called `name`.

    Raises FileNotFoundError or ValueError, in one line, where it is neither, damaged, or of no known task.
    """
    from robopolicy.bundles.bundle import MANIFEST, read_manifest
    from robopolicy.experiments.runs import find_run, load, task_of
    from robopolicy.policies.catalogue import restore

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
    from robopolicy.costs.flops import count_step
    from robopolicy.policies.catalogue import blank_policy
    from robopolicy.training.capacity import check_fits

    counted = count_step(blank_policy(config))
    check_fits(f"attention is {config.attention!r}", counted.peak_bytes, "a policy step")
    return counted.total


def row(subject: Subject, per_second: bool) -> Row:
    """What a subject costs, a step or also a second."""
    from robopolicy.costs.flops import count_step
    from robopolicy.policies.base import parameter_count
    from robopolicy.policies.catalogue import blank_policy

    config, policy = subject.config, blank_policy(subject.config)
    price = count_step(policy).summary() if subject.price is None else subject.price
    settings = {f.name: getattr(config, f.name) for f in fields(config)}
    told: Row = {
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
        told |= {"control_rate": rate, "total_per_second": rate * price["total"]}
    return told


def parts(rows: Sequence[Row]) -> list[str]:
    """The parts that any of `rows` has, in the order in which a step passes them."""
    from robopolicy.costs.flops import COMPONENTS, OTHER

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
    import csv
    import io

    texts = ("policy", "task", "attention", "variant", "head")
    numbers = ["total", "traffic_bytes", "peak_bytes"]
    numbers += ["control_rate", "total_per_second"] if "control_rate" in rows[0] else []
    classes, components = list(rows[0]["by_class"]), parts(rows)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*texts, "tokens", "parameters", *components, *numbers, *classes])
    for row in rows:
        cells = [row.get(name) for name in (*texts, "tokens", "parameters")]
        cells += [row["by_component"].get(part, 0) for part in components]
        cells += [row[name] for name in numbers]
        writer.writerow([*cells, *(row["by_class"][kind] for kind in classes)])
    return file.getvalue()
