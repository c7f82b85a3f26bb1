"""Operations that choose among numbers: the largest ones, and those at given places."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from robopolicy.bundles.c_source.loops import element, index, loops
from robopolicy.bundles.c_source.operands import axis_of, known, tensor
from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.tensors import FLOAT, INTEGER, Tensor, UnsupportedError

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
DIGITS = 256  # that one round of the sort tells apart


def arg_extreme(sign: str, program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """ArgMax or ArgMin: the first or last place of the largest or smallest number along an axis."""
    one = tensor(program, inputs[0])
    axis = axis_of(attributes.get("axis", 0), len(one.shape))
    if attributes.get("select_last_index", 0):
        sign += "="
    shape = [1 if place == axis else size for place, size in enumerate(one.shape)]
    out = program.work(shape, INTEGER)
    target = out.seen_as(np.squeeze(out.view, axis))
    first = one.seen_as(np.moveaxis(one.view, axis, 0)[0, ...])
    nest = loops([target, first])
    goal, begin = element(target, nest.strides[0]), index(first.offset, nest.strides[1], nest.names)
    stride, name = one.view.strides[axis], one.buffer.name
    code = (
        f"const {one.kind} *x = {name} + {begin};\n"
        f"int32_t best = 0;\n"
        f"for (int32_t r = 1; r < {one.shape[axis]}; r++)\n"
        f"    best = x[r * {stride}] {sign} x[best * {stride}] ? r : best;\n"
        f"{goal} = best;\n"
    )
    program.add(nest.around(code), [one], [out])
    return [out if attributes.get("keepdims", 1) else target]


def top_k(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """TopK of real numbers: the largest or smallest ones along the last axis, and their places, in order."""
    one, count = tensor(program, inputs[0]), known(inputs, 1, "TopK", "a number")
    axis = axis_of(attributes.get("axis", -1), len(one.shape))
    if count is None or one.kind != FLOAT or axis != len(one.shape) - 1:
        raise UnsupportedError("operation TopK of integers, or along another axis than the last")
    one, size, most = program.row(one), one.shape[-1], int(count[0])
    rows = one.size // size
    values, places = (program.work((*one.shape[:-1], most), kind) for kind in (FLOAT, INTEGER))
    scratch = program.work((3 * size + DIGITS,), INTEGER)
    flip = "0xFFFFFFFFu" if attributes.get("largest", 1) else "0u"
    code = (
        f"uint32_t *keys = (uint32_t *){scratch.buffer.name}, *order = keys + {size};\n"
        f"for (size_t i = 0; i < {rows}; i++) {{\n"
        f"    const float *x = {one.pointer} + i * {size};\n"
        f"    order_of(x, {size}, {flip}, keys, order, keys + {2 * size}, keys + {3 * size});\n"
        f"    for (size_t k = 0; k < {most}; k++) {{\n"
        f"        {values.buffer.name}[i * {most} + k] = x[order[k]];\n"
        f"        {places.buffer.name}[i * {most} + k] = (int32_t)order[k];\n"
        "    }\n}\n"
    )
    program.add(code, [one, scratch], [values, places, scratch])
    return [values, places]


def gather(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Gather: slices of the first operand at places that the second one holds, along an axis."""
    one = tensor(program, inputs[0])
    axis = axis_of(attributes.get("axis", 0), len(one.shape))
    size = one.shape[axis]
    if not isinstance(inputs[1], Tensor):
        places = np.asarray(inputs[1])
        if ((places < -size) | (places >= size)).any():
            raise UnsupportedError(f"operation Gather at {places.min()} to {places.max()} of {size} places")
        if places.ndim == 0:
            return [one.seen_as(np.moveaxis(one.view, axis, 0)[int(places), ...])]
        inputs = [one, np.where(places < 0, places + size, places)]
    at = tensor(program, inputs[1])
    shape = (*one.shape[:axis], *at.shape, *one.shape[axis + 1 :])
    out, rank = program.work(shape, one.kind), axis + len(at.shape)
    ending: Any = (Ellipsis, *(0,) * (len(shape) - rank))
    before = np.moveaxis(one.view, axis, 0)[0, ...][ending]
    more: Any = (Ellipsis, *(np.newaxis,) * len(at.shape))
    before = np.broadcast_to(before[more], shape[:rank])
    parts = [
        out.at(ending),
        one.seen_as(before),
        at.seen_as(np.broadcast_to(at.view, shape[:rank])),
    ]
    outer = loops(parts)
    inside = [
        out.at((0,) * rank + (Ellipsis,)),
        one.at((0,) * (axis + 1) + (Ellipsis,)),
    ]
    inner = loops(inside, "j")
    goal, source = (
        f"{part.buffer.name}[{index(part.offset, strides, outer.names)} + {{}}]"
        for part, strides in zip(parts[:2], outer.strides, strict=False)
    )
    stride = one.view.strides[axis]
    copied = (index(0, strides, inner.names) for strides in inner.strides)
    move = f"{goal.format(next(copied))} = {source.format(f'place * {stride} + ' + next(copied))};\n"
    code = f"size_t place = (size_t){element(parts[2], outer.strides[2])};\n"
    if isinstance(inputs[1], Tensor):
        code = (
            f"int32_t at = {element(parts[2], outer.strides[2])};\n"
            f"size_t place = (size_t)(at < 0 ? at + {size} : at);\n"
            f"if (place >= {size}) {{\n    wrong = 1;\n    place = 0;\n}}\n"
        )
    program.add(outer.around(code + inner.around(move)), [one, at], [out])
    return [out]


def scatter_nd(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """ScatterND that adds: rows of the last operand to those rows of the first that the second one names."""
    one, at, added = (program.row(tensor(program, value)) for value in inputs)
    if attributes.get("reduction") != b"add" or at.shape[-1] != 1:
        raise UnsupportedError("operation ScatterND that does not add, or not to whole rows, has no C source")
    rows, width = one.shape[0], one.size // one.shape[0]
    out = program.work(one.shape, one.kind)
    name = out.buffer.name
    code = (
        f"for (size_t i = 0; i < {one.size}; i++)\n    {name}[i] = ({one.pointer})[i];\n"
        f"for (size_t i = 0; i < {at.size}; i++) {{\n"
        f"    int32_t at = ({at.pointer})[i];\n"
        f"    size_t place = (size_t)(at < 0 ? at + {rows} : at);\n"
        f"    if (place >= {rows}) {{\n        wrong = 1;\n        place = 0;\n    }}\n"
        f"    for (size_t j = 0; j < {width}; j++)\n"
        f"        {name}[place * {width} + j] += ({added.pointer})[i * {width} + j];\n"
        "}\n"
    )
    program.add(code, [one, at, added], [out])
    return [out]


OPERATIONS: dict[str, Callable[..., list[Tensor]]] = {
    "ArgMax": partial(arg_extreme, ">"),
    "ArgMin": partial(arg_extreme, "<"),
    "Gather": gather,
    "ScatterND": scatter_nd,
    "TopK": top_k,
}
