"""robopolicy flops"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.envs.registry import TASKS, check_name
from robopolicy.experiments.default_policies import (
    OPTIONS,
    canonical_spec,
    policy_config,
    policy_kind,
)
from robopolicy.experiments.flop_table import (
    EXACT,
    Row,
    Subject,
    comma_separated,
    row,
    subject,
    table,
    with_specs,
)
from robopolicy.experiments.output_files import check_file, check_picture

COMPARED = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=256)")


@dataclass(frozen=True)
class Flops:
    """Print the FLOPs of one policy step, part by part; exact softmax is always among the rows.

    For example:
        robopolicy flops runs/first
        robopolicy flops runs/first bundle --attention "positive(m=64)" --per-second
        robopolicy flops --attention "angular_hybrid(m=8, n=8)" --csv flops.csv --picture flops.png
        robopolicy flops --task bimanual-sweep --patch 10
    """

    policies: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="[RUN|BUNDLE ...]")]] = ()
    """Runs, shipped policies and exported bundles to count. Default: the policy that the task is trained
    with."""
    task: Annotated[str | None, tyro.conf.arg(aliases=("--env",))] = None
    """Without a run or a bundle, the task whose policy is counted: stepping-stones (the default),
    bimanual-sweep or module:Name-v0."""
    attention: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Attention to count, with the settings of each run or bundle; repeatable. Default, where there is none
    of these: what the paper compares."""
    variant: str | None = None
    """On stepping-stones, what the policy does with its attention: mask (the default), rank or trans."""
    preset: str | None = None
    """On the bimanual sweep, the size of the policy: tiny, small (the default) or base."""
    head: str | None = None
    """On the bimanual sweep, how actions are chosen; default: autoregressive."""
    patch: int | None = None
    """Side of a token, in pixels; default: that of the task."""
    per_second: bool = False
    """Also tell FLOPs a second, at the rate at which the task asks for actions."""
    csv: Path | None = None
    """Also write the rows to this .csv."""
    picture: Path | None = None
    """Also draw them as stacked bars, to this .png or .svg."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Count, write files, print."""
        check_file("csv", self.csv, (".csv",))
        check_picture("picture", self.picture)
        given = {n: v for n in ("variant", "preset", "head", "patch") if (v := getattr(self, n)) is not None}
        specs = [canonical_spec(spec) for spec in self.attention]
        if self.policies:
            named, base = self._named(given), None
        else:
            named, base = [], self._base(given)
            specs = specs or [canonical_spec(spec) for spec in COMPARED]
        rows = [row(one, self.per_second) for one in with_specs(named, base, specs)]
        if self.csv is not None:
            from robopolicy.writing import write_atomically

            write_atomically(self.csv, comma_separated(rows))
        if self.picture is not None:
            _draw(self.picture, rows)
        print(json_format.dumps(rows) if self.json else table(rows))

    def _named(self, given: dict[str, Any]) -> list[Subject]:
        """The runs and bundles that are counted."""
        first = self.policies[0]
        for name, value in given.items():
            raise ValueError(f"{name} is {value!r}: {first!r} has its own, so give one or the other")
        named = [subject(name) for name in self.policies]
        if self.task is not None:
            check_name(self.task)
            for one in named:
                if one.task != self.task:
                    raise ValueError(f"task is {self.task!r}: {one.name!r} was trained on {one.task!r}")
        return named

    def _base(self, given: dict[str, Any]) -> Subject:
        """The policy that a task is trained with, with one mechanism or another."""
        task = next(iter(TASKS)) if self.task is None else self.task
        own = OPTIONS[policy_kind(task)]
        for name, value in given.items():
            if name not in own:
                raise ValueError(f"{name} is {value!r}: the policy of {task} has no such setting")
        return Subject(None, task, policy_config(EXACT, task, **given), None)


def _draw(path: Path, rows: list[Row]) -> None:
    from robopolicy.costs.flops import COMPONENTS, OTHER
    from robopolicy.viz.stacked_bars import stacked_bars

    alike = len({(row.get("variant", row["head"]), row["tokens"]) for row in rows}) == 1
    bars = []
    for told in rows:
        settings = f"{told.get('variant', told['head'])}, {told['tokens']} tokens"
        lines = [told["policy"], told["attention"] + ("" if alike else f" ({settings})")]
        times = told.get("control_rate", 1)
        sizes = {part: times * flops for part, flops in told["by_component"].items()}
        bars.append((": ".join(line for line in lines if line), sizes))
    title, unit = "FLOPs of one policy step", "FLOPs"
    if "control_rate" in rows[0]:
        title, unit = "FLOPs of a policy in a second", "FLOPs a second"
    stacked_bars(path, bars, (*COMPONENTS, OTHER), f"{title} ({settings})" if alike else title, unit)
