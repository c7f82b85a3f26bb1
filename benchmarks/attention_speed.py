"""The speed of attention mechanisms against exact softmax: feature map, ranking, full attention.

    python benchmarks/attention_speed.py
    python benchmarks/attention_speed.py --attention "angular_hybrid(m=8, n=8)" --tokens 768 --dims 8
    python benchmarks/attention_speed.py --batch 8 --tokens 400 2500 10000 --json

On a CPU one core computes. On an NVIDIA GPU, cuDNN's fused attention (bfloat16) takes its turn, too.

All mechanisms of one size take turns, round after round, so that a slow spell of the machine affects all of
them. Ratios count, not milliseconds.

Expected: from 1,536 tokens on, the time of linear mechanisms grows with a slope of about one over the number
of tokens, and that of exact softmax with a slope of about two.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from robopolicy.attention import attention, canonical, feature_map
from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.costs.flops import count

EXACT = "softmax"
LIBRARY = "jax.nn.dot_product_attention"
FUSED = f"{LIBRARY}, cudnn, bfloat16"
OPERATIONS = ("map", "rank", "apply")
LONG = 1536  # tokens, from which growth is measured; below, constant costs still count
SLOW = 0.02  # s; after a longer call, memory and caches are cold for the next one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--attention", action="append", help="mechanism; repeatable; default: all")
    parser.add_argument("--tokens", type=int, nargs="+", default=[96, 768, 1536, 6144, 24576])
    parser.add_argument("--dims", type=int, nargs="+", default=[8, 64], help="widths of queries and keys")
    parser.add_argument("--batch", type=int, default=1, help="sequences of tokens at once")
    parser.add_argument("--seconds", type=float, default=0.2, help="of each mechanism at each size")
    parser.add_argument("--json", action="store_true", help="print the result as JSON on stdout")
    settings = parser.parse_args()
    try:
        rows = _measure(settings)
    except ValueError as error:
        print(f"attention_speed: {error}", file=sys.stderr)
        return 2
    print(json.dumps(rows) if settings.json else "\n".join(_table(rows)))
    return 0


def _measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    for name, values in (("tokens", settings.tokens), ("dims", settings.dims), ("batch", [settings.batch])):
        if min(values) < 1:
            raise ValueError(f"{name} is {' '.join(map(str, values))}: it must be positive integers")
    if not settings.seconds > 0:
        raise ValueError(f"seconds is {settings.seconds}: it must be above 0")
    asked = settings.attention or [m.example for m in MECHANISMS.values()]
    specs = list(dict.fromkeys([*(canonical(spec) for spec in asked), EXACT]))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # JAX starts its threads only now
    rows: list[dict[str, Any]] = []
    for dim in settings.dims:
        for tokens in settings.tokens:
            rows += _measured(specs, settings.batch, tokens, dim, settings.seconds)
            print(f"timed {tokens} tokens, d = {dim}", end="\r", file=sys.stderr, flush=True)
    print(" " * 40, end="\r", file=sys.stderr)
    for row in rows:
        row["slope"] = _slope(row, rows)
    return rows


def _cases(
    specs: list[str], batch: int, tokens: int, dim: int
) -> Iterator[tuple[str, str, Callable[..., Any], tuple[Any, ...]]]:
    """(mechanism, operation, function, arguments) of everything that is timed at one size."""
    keys = jax.random.split(jax.random.key(0), 4)
    # One sequence has no axis more: XLA compiles one of length one to slower code.
    shape = (tokens, dim) if batch == 1 else (batch, tokens, dim)
    q, k, v = (jax.random.normal(key, shape) for key in keys[:3])
    q, k = (a / jnp.linalg.norm(a, axis=-1, keepdims=True) for a in (q, k))
    over = _batched if batch > 1 else lambda function: function
    for spec in specs:
        mechanism = attention(spec)
        features = mechanism.init(keys[3], dim)
        if spec != EXACT:
            fm = feature_map(spec)
            # What reads a map reads its factors, so that is what making it means.
            yield (
                spec,
                "map",
                over(lambda f, x, fm=fm: [(b.factors, b.log_scale) for b in fm.apply_q(f, x).blocks]),
                (features, q),
            )
        yield spec, "rank", over(mechanism.rank), (features, q, k)
        yield spec, "apply", over(mechanism.apply), (features, q, k, v)
    heads = tuple(a.reshape(batch, tokens, 1, dim) for a in (q, k, v))
    yield LIBRARY, "apply", partial(jax.nn.dot_product_attention, scale=1.0), heads
    if jax.default_backend() == "gpu" and "NVIDIA" in jax.devices()[0].device_kind and dim % 8 == 0:
        halves = tuple(a.astype(jnp.bfloat16) for a in heads)
        yield FUSED, "apply", partial(jax.nn.dot_product_attention, scale=1.0, implementation="cudnn"), halves


def _batched(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of features and arrays, for arrays that have a first axis more."""
    return lambda features, *arrays: jax.vmap(partial(function, features))(*arrays)


def _measured(specs: list[str], batch: int, tokens: int, dim: int, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    timed = []
    for name, operation, function, arguments in _cases(specs, batch, tokens, dim):
        compiled = jax.jit(function).lower(*arguments).compile()
        memory = compiled.memory_analysis()
        rows.append(
            {
                "attention": name,
                "op": operation,
                "tokens": tokens,
                "dim": dim,
                "batch": batch,
                "device": jax.devices()[0].device_kind,
                "flops": None if name == FUSED else count(function, *arguments).total,
                "memory_bytes": int(memory.temp_size_in_bytes + memory.output_size_in_bytes)
                if memory
                else None,
            }
        )
        timed.append((compiled, arguments))
    for row, seconds_a_call in zip(rows, _times(timed, seconds), strict=True):
        row["time_ms"] = 1e3 * seconds_a_call
    exact = {row["op"]: row["time_ms"] for row in rows if row["attention"] == EXACT}
    for row in rows:
        # How many times as fast as exact softmax; a map alone has nothing exact to be held against.
        row["vs_softmax"] = exact[row["op"]] / row["time_ms"] if row["op"] in exact else None
    return rows


def _times(timed: list[tuple[Any, tuple[Any, ...]]], seconds: float) -> list[float]:
    """The shortest time of each call, in seconds, over rounds in which all take their turn."""
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
                flops = "" if last["flops"] is None else f"{last['flops'] / 1e6:.1f}"
                memory = f"{last['memory_bytes'] / 2**20:.1f}"
                yield "  ".join([name.ljust(width), *shown, flops.rjust(9), memory.rjust(7), slope.rjust(5)])
            yield ""


def _cell(time_ms: float, ratio: float | None) -> str:
    return f"{time_ms:.3f}{'' if ratio is None else f' ({ratio:.2f}x)'}".rjust(18)


if __name__ == "__main__":
    sys.exit(main())
