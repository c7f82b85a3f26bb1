"""robopolicy flops"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from robopolicy.cli.tasks import Rollouts, canonical_spec, check_task, level_depth, policy_config
from robopolicy.envs.physics import default_engine

COMPARED = ("angular_hybrid(m=8, n=8)", "positive_antithetic(m=256)")
EXACT = "softmax"


@dataclass(frozen=True)
class Flops:
    """Print the FLOPs of one policy step, part by part; exact softmax is always among the rows.

    Example: robopolicy flops runs/first
    Example: robopolicy flops --attention "angular_hybrid(m=8, n=8)" --attention "positive(m=64)"
    """

    policy: tyro.conf.Positional[Annotated[str | None, tyro.conf.arg(metavar="RUN")]] = None
    """A run to take the policy's settings from; default: those of the task."""
    task: str = "stepping-stones"
    """Task whose policy is counted."""
    attention: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Attention to count; repeatable. Default: the run's, or those that the paper compares."""
    variant: str = "mask"
    """What the policy does with its attention: mask, rank or trans."""
    patch: int = 2
    """Side of a token, in pixels."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Count and print."""
        check_task(self.task)
        from dataclasses import replace

        base = policy_config(EXACT, variant=self.variant, patch=self.patch)
        asked = list(self.attention) or list(COMPARED)
        if self.policy is not None:
            from robopolicy.cli.runs import load_run

            base = load_run(self.policy).config
            asked = [base.attention, *self.attention]
        specs = list(dict.fromkeys(canonical_spec(spec) for spec in [*asked, EXACT]))
        level = level_depth(Rollouts(default_engine()))
        rows = [_row(replace(base, attention=spec), level) for spec in specs]
        print(json_format.dumps(rows) if self.json else _table(rows))


def _row(config: Any, level: Any) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp

    from robopolicy.flops import count
    from robopolicy.policies.base import parameter_count
    from robopolicy.policies.iap import iap

    policy = iap(config, level)
    key = jax.random.key(0)
    observation = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in policy.observation_shapes.items()
    }
    shapes = jax.eval_shape(policy.init, key), jax.eval_shape(policy.init_features, key)
    counted = count(policy.act, *shapes, observation)
    return {
        "attention": config.attention,
        "total": counted.total,
        "by_component": counted.by_component,
        "by_class": counted.by_class,
        "parameters": parameter_count(policy),
        "variant": config.variant,
        "tokens": config.grid[0] * config.grid[1] * 2,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    parts = list(dict.fromkeys(part for row in rows for part in row["by_component"]))
    width = max(len(part) for part in [*parts, "against the first"])
    columns = [max(len(row["attention"]), 12) for row in rows]
    lines = [f"FLOPs of one policy step ({rows[0]['variant']}, {rows[0]['tokens']} tokens)"]

    def line(title: str, cells: list[str]) -> None:
        padded = [cell.rjust(w) for cell, w in zip(cells, columns, strict=True)]
        lines.append("  ".join([title.ljust(width), *padded]))

    line("", [row["attention"] for row in rows])
    for part in parts:
        line(part, [f"{row['by_component'].get(part, 0):,}" for row in rows])
    line("total", [f"{row['total']:,}" for row in rows])
    line("against the first", [f"{row['total'] / rows[0]['total']:.2f}x" for row in rows])
    return "\n".join(lines)
