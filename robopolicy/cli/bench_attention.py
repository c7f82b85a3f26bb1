"""robopolicy bench attention"""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

EXACT = "softmax"
LIBRARY = "jax.nn.dot_product_attention"
OPERATIONS = ("map", "rank", "apply")
# Where growth is measured: below, what does not depend on the number of tokens still counts.
LONG = 1536
# Seconds from which a call is large enough for the next one to feel it.
SLOW = 0.02


@dataclass(frozen=True)
class BenchAttention:
    """Time attention mechanisms against exact softmax on one core: feature map, ranking and full attention.

    All mechanisms of one size are timed in turns, round after round, so that a slow spell of the machine
    meets them all; ratios are what to read, not milliseconds.

    For example:
        robopolicy bench attention
        robopolicy bench attention --attention "angular_hybrid(m=8, n=8)" --tokens 768 --dims 8
    """

    attention: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Mechanism to time; repeatable. Default: an example of every mechanism. softmax is always there."""
    tokens: tuple[int, ...] = (96, 768, 1536, 6144, 24576)
    """Numbers of tokens, as many queries as keys."""
    dims: tuple[int, ...] = (8, 64)
    """Widths of queries, keys and values."""
    seconds: float = 0.2
    """How long each mechanism is timed for at each size, in seconds; three rounds in any case."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Time and print."""
        for name, values in (("tokens", self.tokens), ("dims", self.dims)):
            if not values or min(values) < 1:
                raise ValueError(f"--{name} is {' '.join(map(str, values))}: it must be positive integers")
        if not self.seconds > 0:
            raise ValueError(f"--seconds is {self.seconds}: it must be above 0")
        from robopolicy.attention import canonical
        from robopolicy.attention.catalogue import MECHANISMS

        asked = list(self.attention) or [m.example for m in MECHANISMS.values()]
        specs = list(dict.fromkeys([*(canonical(spec) for spec in asked), EXACT]))
        one_core()
        rows: list[dict[str, Any]] = []
        for dim in self.dims:
            for tokens in self.tokens:
                rows += _measured(specs, tokens, dim, self.seconds)
                print(f"timed {len(rows)} of {_expected(self, specs)}", end="\r", file=sys.stderr, flush=True)
        print(" " * 40, end="\r", file=sys.stderr)
        for row in rows:
            row["slope"] = _slope(row, rows)
        print(json_format.dumps(rows) if self.json else "\n".join(_table(rows)))


def one_core() -> None:
    """Keep this process, and the threads that JAX is yet to start, on one core."""
    import os

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()


def _expected(settings: BenchAttention, specs: list[str]) -> int:
    return len(settings.dims) * len(settings.tokens) * (len(specs) * len(OPERATIONS))


def _cases(
    specs: list[str], tokens: int, dim: int
) -> Iterator[tuple[str, str, Callable[..., Any], tuple[Any, ...]]]:
    """(mechanism, operation, function, arguments) of everything that is timed at one size."""
    import jax
    import jax.numpy as jnp

    from robopolicy.attention import attention, feature_map

    keys = jax.random.split(jax.random.key(0), 4)
    q, k, v = (jax.random.normal(key, (tokens, dim)) for key in keys[:3])
    q, k = (a / jnp.linalg.norm(a, axis=1, keepdims=True) for a in (q, k))
    for spec in specs:
        mechanism = attention(spec)
        features = mechanism.init(keys[3], dim)
        if spec != EXACT:
            fm = feature_map(spec)
            # What reads a map reads its factors, so that is what making it means.
            yield (
                spec,
                "map",
                lambda f, x, fm=fm: [(b.factors, b.log_scale) for b in fm.apply_q(f, x).blocks],
                (features, q),
            )
        yield spec, "rank", lambda f, q, k, m=mechanism: m.rank(f, q, k), (features, q, k)
        yield spec, "apply", lambda f, q, k, v, m=mechanism: m.apply(f, q, k, v), (features, q, k, v)
    heads = tuple(a[None, :, None] for a in (q, k, v))
    yield LIBRARY, "apply", lambda q, k, v: jax.nn.dot_product_attention(q, k, v, scale=1.0), heads


def _measured(specs: list[str], tokens: int, dim: int, seconds: float) -> list[dict[str, Any]]:
    import jax

    from robopolicy.costs.flops import count

    rows: list[dict[str, Any]] = []
    timed = []
    for name, operation, function, arguments in _cases(specs, tokens, dim):
        compiled = jax.jit(function).lower(*arguments).compile()
        memory = compiled.memory_analysis()
        rows.append(
            {
                "attention": name,
                "op": operation,
                "tokens": tokens,
                "dim": dim,
                "flops": count(function, *arguments).total,
                "memory_bytes": int(memory.temp_size_in_bytes + memory.output_size_in_bytes)
                if memory
                else None,
            }
        )
        timed.append((compiled, arguments))
    for row, time in zip(rows, _times(timed, seconds), strict=True):
        row["time_ms"] = 1e3 * time
    exact = {row["op"]: row["time_ms"] for row in rows if row["attention"] == EXACT}
    for row in rows:
        # How many times as fast as exact softmax; a map alone has nothing exact to be held against.
        row["vs_softmax"] = exact[row["op"]] / row["time_ms"] if row["op"] in exact else None
    return rows


def _times(timed: list[tuple[Any, tuple[Any, ...]]], seconds: float) -> list[float]:
    """The shortest time of each call, in seconds, over rounds in which all take their turn."""
    import time

    import jax

    best, spent = [float("inf")] * len(timed), [0.0] * len(timed)
    rounds, took = 0, 0.0
    while rounds < 3 or min(spent) < seconds:
        for index, (call, arguments) in enumerate(timed):
            if rounds >= 3 and spent[index] >= seconds:
                continue
            if not rounds or took > SLOW:
                # Memory is touched for the first time, or given back after a large call: not for this to pay.
                jax.block_until_ready(call(*arguments))
            began = time.perf_counter()
            jax.block_until_ready(call(*arguments))
            took = time.perf_counter() - began
            best[index] = min(best[index], took)
            spent[index] += took
        rounds += 1
    return best


def _slope(row: dict[str, Any], rows: list[dict[str, Any]]) -> float | None:
    """Of log time over log tokens from LONG tokens on, of the mechanism and operation of `row`."""
    import numpy as np

    same = [r for r in rows if all(r[key] == row[key] for key in ("attention", "op", "dim"))]
    long = [(r["tokens"], r["time_ms"]) for r in same if r["tokens"] >= LONG]
    if len({tokens for tokens, _ in long}) < 2:
        return None
    tokens, times = np.log(np.array(long)).T
    return float(np.polyfit(tokens, times, 1)[0])


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Tables of one operation and width: a line a mechanism, a column a number of tokens."""
    names = list(dict.fromkeys(row["attention"] for row in rows))
    width = max(len(name) for name in names)
    sizes = list(dict.fromkeys(row["tokens"] for row in rows))
    for dim in dict.fromkeys(row["dim"] for row in rows):
        for operation in OPERATIONS:
            found = {
                (r["attention"], r["tokens"]): r for r in rows if (r["dim"], r["op"]) == (dim, operation)
            }
            ratio = operation != "map"
            title = f"{operation}, d = {dim}: ms" + (" (times as fast as exact softmax)" if ratio else "")
            yield f"{title}; MFLOPs and MiB at {sizes[-1]} tokens; slope from {LONG} tokens on"
            heads = [f"L = {size}".rjust(18) for size in sizes]
            yield "  ".join(["".ljust(width), *heads, "MFLOPs".rjust(9), "MiB".rjust(7), "slope"])
            for name in names:
                if (name, sizes[0]) not in found:
                    continue
                cells = [found[name, size] for size in sizes]
                shown = [_cell(cell["time_ms"], cell["vs_softmax"] if ratio else None) for cell in cells]
                last = cells[-1]
                slope = "" if last["slope"] is None else f"{last['slope']:.2f}"
                flops, memory = last["flops"] / 1e6, last["memory_bytes"] / 2**20
                yield "  ".join(
                    [name.ljust(width), *shown, f"{flops:9.1f}", f"{memory:7.1f}", slope.rjust(5)]
                )
            yield ""


def _cell(time_ms: float, ratio: float | None) -> str:
    return f"{time_ms:.3f}{'' if ratio is None else f' ({ratio:.2f}x)'}".rjust(18)
