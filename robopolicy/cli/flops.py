"""robopolicy flops"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from robopolicy.cli.tasks import (
    STONES,
    SWEEP,
    TASKS,
    canonical_spec,
    check_task,
    cloned_config,
    policy_config,
)

COMPARED = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=256)")
EXACT = "softmax"
OWN = {STONES: ("variant", "patch"), SWEEP: ("preset", "patch", "head")}  # settings of each task's policy


@dataclass(frozen=True)
class Flops:
    """Print the FLOPs of one policy step, part by part; exact softmax is always among the rows.

    Example: robopolicy flops runs/first
    Example: robopolicy flops --attention "angular_hybrid(m=8, n=8)" --attention "positive(m=64)"
    Example: robopolicy flops --task bimanual-sweep --patch 10
    """

    policy: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="RUN")]] = None
    """A run to take the policy's settings from; default: those of the task."""
    task: str = STONES
    """Task whose policy is counted, stepping-stones or bimanual-sweep."""
    attention: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Attention to count; repeatable. Default: the run's, or those that the paper compares."""
    variant: str | None = None
    """On stepping-stones, what the policy does with its attention: mask (the default), rank or trans."""
    preset: str | None = None
    """On the bimanual sweep, the size of the policy: tiny, small (the default) or base."""
    head: str | None = None
    """On the bimanual sweep, how actions are chosen; default: autoregressive."""
    patch: int | None = None
    """Side of a token, in pixels; default: that of the task."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Count and print."""
        check_task(self.task, tuple(TASKS))
        from dataclasses import replace

        base, asked = self._policy(), list(self.attention) or list(COMPARED)
        if self.policy is not None:
            asked = [base.attention, *self.attention]
        specs = list(dict.fromkeys(canonical_spec(spec) for spec in [*asked, EXACT]))
        rows = [_row(replace(base, attention=spec)) for spec in specs]
        print(json_format.dumps(rows) if self.json else _table(rows))

    def _policy(self) -> Any:
        """The config that is counted, with one mechanism or another."""
        given = {n: v for n in ("variant", "preset", "head", "patch") if (v := getattr(self, n)) is not None}
        if self.policy is not None:
            from robopolicy.cli.runs import load_run

            if given:
                name, value = next(iter(given.items()))
                raise ValueError(f"{name} is {value!r}: the run {self.policy!r} has its own")
            return load_run(self.policy).config
        for name, value in given.items():
            if name not in OWN[self.task]:
                raise ValueError(f"{name} is {value!r}: the policy of {self.task} has no such setting")
        return policy_config(EXACT, **given) if self.task == STONES else cloned_config(EXACT, **given)


def _row(config: Any) -> dict[str, Any]:
    import jax

    from robopolicy.flops import count
    from robopolicy.policies.base import KEY, parameter_count
    from robopolicy.policies.catalogue import untold

    policy = untold(config)
    shapes = jax.eval_shape(policy.init, KEY), jax.eval_shape(policy.init_features, KEY)
    counted = count(policy.act, *shapes, policy.observation)
    return {
        "attention": config.attention,
        "total": counted.total,
        "by_component": counted.by_component,
        "by_class": counted.by_class,
        "parameters": parameter_count(policy),
        **{name: getattr(config, name) for name in ("variant", "head") if hasattr(config, name)},
        "tokens": config.tokens,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    parts = list(dict.fromkeys(part for row in rows for part in row["by_component"]))
    width = max(len(part) for part in [*parts, "against the first"])
    columns = [max(len(row["attention"]), 12) for row in rows]
    kind = rows[0].get("variant", rows[0]["head"])
    lines = [f"FLOPs of one policy step ({kind}, {rows[0]['tokens']} tokens)"]

    def line(title: str, cells: list[str]) -> None:
        padded = [cell.rjust(w) for cell, w in zip(cells, columns, strict=True)]
        lines.append("  ".join([title.ljust(width), *padded]))

    line("", [row["attention"] for row in rows])
    for part in parts:
        line(part, [f"{row['by_component'].get(part, 0):,}" for row in rows])
    line("total", [f"{row['total']:,}" for row in rows])
    line("against the first", [f"{row['total'] / rows[0]['total']:.2f}x" for row in rows])
    return "\n".join(lines)
