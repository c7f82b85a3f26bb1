"""Sums, means, largest and smallest numbers along axes. The order of each sum is fixed by the source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from robopolicy.bundles.c_source.loops import around, element, index, loops
from robopolicy.bundles.c_source.operands import axis_of, known, tensor
from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.tensors import FLOAT, INTEGER, Tensor, UnsupportedError

LANES = 8  # sums of every eighth number, which processors compute at once
STARTS = {"Sum": "0.0f", "Mean": "0.0f", "SumSquare": "0.0f", "Max": None, "Min": None}


def _joined(kind: str, whole: str, one: str) -> str:
    """The reduction of `whole` and one more number, in C."""
    if kind in ("Max", "Min"):
        return f"{'larger' if kind == 'Max' else 'smaller'}({whole}, {one})"
    return f"{whole} + {one} * {one}" if kind == "SumSquare" else f"{whole} + {one}"


def reduce(
    kind: str, program: Program, inputs: Sequence[Any], attributes: Mapping[str, Any], _: int
) -> list[Tensor]:
    """ReduceSum, ReduceMean, ReduceSumSquare, ReduceMax or ReduceMin of real numbers."""
    one = tensor(program, inputs[0])
    if one.kind != FLOAT and not (one.kind == INTEGER and kind == "Sum"):
        raise UnsupportedError(f"operation Reduce{kind} of integers has no C source")
    axes = _axes(kind, one, inputs, attributes)
    kept = [axis for axis in range(len(one.shape)) if axis not in axes]
    shape = [1 if axis in axes else size for axis, size in enumerate(one.shape)]
    out = program.work(shape, one.kind)
    target = out.seen_as(np.squeeze(out.view, tuple(axes)))
    if one.kind == INTEGER:
        _add_integers(program, one.seen_as(one.view.transpose(*axes, *kept)), target)
    else:
        moved = one.seen_as(one.view.transpose(*kept, *axes))
        program.add_rows(partial(_code, kind), [target], [moved])
    return [out if attributes.get("keepdims", 1) else target]


def _axes(kind: str, one: Tensor, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[int]:
    axes = known(inputs, 1, f"Reduce{kind}", "axes") or attributes.get("axes") or []
    if not axes and not attributes.get("noop_with_empty_axes", 0):
        axes = range(len(one.shape))
    return sorted(axis_of(axis, len(one.shape)) for axis in axes)


def _code(kind: str, target: Tensor, moved: Tensor) -> str:
    """Loops over the kept axes of `moved`, which come first, with the reduction of the others inside."""
    kept = len(target.shape)
    count = int(np.prod(moved.shape[kept:], dtype=int))
    first = moved.at((slice(None),) * kept + (0,) * (len(moved.shape) - kept) + (Ellipsis,))
    outer = loops([target, first])
    inner = loops([moved.at((0,) * kept + (Ellipsis,))], "r") if count > 1 else None
    place = index(first.offset, outer.strides[1], outer.names)
    goal = element(target, outer.strides[0])
    share = f" / {float(count)}f" if kind == "Mean" and count > 1 else ""
    if inner is None or not inner.sizes:
        number = f"{moved.buffer.name}[{place}]"
        return outer.around(f"{goal} = {number}{f' * {number}' if kind == 'SumSquare' else ''};\n")
    (steps,) = inner.strides
    if outer.sizes and outer.strides[1][-1] == 1 and steps[-1] != 1 and outer.sizes[-1] >= 4:
        return _by_columns(kind, moved, outer, inner, goal, place, share)
    if len(inner.sizes) == 1 and steps == (1,) and count >= 2 * LANES:
        return outer.around(_in_lanes(kind, moved, goal, place, count, share))
    number = f"{moved.buffer.name}[{place} + {index(0, steps, inner.names)}]"
    start = STARTS[kind] or f"{moved.buffer.name}[{place}]"
    body = around(inner.sizes, inner.names, f"float x = {number};\ns = {_joined(kind, 's', 'x')};\n")
    return outer.around(f"float s = {start};\n{body}{goal} = s{share};\n")


def _by_columns(kind: str, moved: Tensor, outer: Any, inner: Any, goal: str, place: str, share: str) -> str:
    """Rows are added one after another, all columns of a row at once."""
    *sizes, width = outer.sizes
    *names, column = outer.names
    (steps,) = inner.strides
    number = f"{moved.buffer.name}[{place} + {index(0, steps, inner.names)}]"
    begin = STARTS[kind] or f"{moved.buffer.name}[{place}]"
    body = around([width], [column], f"{goal} = {begin};\n")
    row = around([width], [column], f"float x = {number};\n{goal} = {_joined(kind, goal, 'x')};\n")
    body += around(inner.sizes, inner.names, row)
    if share:
        body += around([width], [column], f"{goal} = {goal}{share};\n")
    return around(sizes, names, body)


def _in_lanes(kind: str, moved: Tensor, goal: str, place: str, count: int, share: str) -> str:
    """Eight reductions side by side, which are then joined in pairs."""
    begin = STARTS[kind]
    starts = ", ".join(begin or f"x[{lane}]" for lane in range(LANES))
    whole = count - count % LANES
    lines = [f"const float *x = {moved.buffer.name} + {place};", f"float s[{LANES}] = {{{starts}}};"]
    lines += [f"for (size_t r = {0 if begin else LANES}; r < {whole}; r += {LANES})"]
    lines += [
        f"    for (size_t j = 0; j < {LANES}; j++)",
        f"        s[j] = {_joined(kind, 's[j]', 'x[r + j]')};",
    ]
    if whole < count:
        lines += [f"for (size_t r = {whole}; r < {count}; r++)"]
        lines += [f"    s[r - {whole}] = {_joined(kind, f's[r - {whole}]', 'x[r]')};"]
    joined = "Sum" if kind in ("Mean", "SumSquare") else kind
    width = LANES
    while width > 1:
        width //= 2
        lines += [f"for (size_t j = 0; j < {width}; j++)"]
        lines += [f"    s[j] = {_joined(joined, 's[j]', f's[j + {width}]')};"]
    return "\n".join([*lines, f"{goal} = s[0]{share};"]) + "\n"


def _add_integers(program: Program, moved: Tensor, target: Tensor) -> None:
    """Fill `target` with the sums over the first axes of `moved`."""
    program.map([], target, lambda: "0")
    spread = target.seen_as(np.broadcast_to(target.view, moved.shape))
    nest = loops([spread, moved])
    goal, number = (element(t, s) for t, s in zip((spread, moved), nest.strides, strict=True))
    program.add(nest.around(f"{goal} += {number};\n"), [moved, target], [target])


OPERATIONS: dict[str, Callable[..., list[Tensor]]] = {
    f"Reduce{kind}": partial(reduce, kind) for kind in STARTS
}
