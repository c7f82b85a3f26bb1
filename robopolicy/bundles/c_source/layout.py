"""Operations that show numbers in another layout, or copy them. Most of them become views, and no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from robopolicy.bundles.c_source.operands import axis_of, known, tensor
from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.tensors import INTEGER, Tensor, UnsupportedError

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]


def reshaped(program: Program, one: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor with another shape: a view where its layout allows one, else a copy."""
    view = one.view.reshape(tuple(shape))
    if not np.may_share_memory(view, one.buffer.plain.view):
        one = program.row(one)
        view = one.view.reshape(tuple(shape))
    return one.seen_as(view)


def reshape(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Reshape."""
    one = tensor(program, inputs[0])
    wanted = known(inputs, 1, "Reshape", "sizes") or []
    if not attributes.get("allowzero", 0):
        wanted = [one.shape[axis] if size == 0 else size for axis, size in enumerate(wanted)]
    return [reshaped(program, one, wanted)]


def squeeze(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Squeeze."""
    one, axes = tensor(program, inputs[0]), known(inputs, 1, "Squeeze", "axes")
    return [one.seen_as(np.squeeze(one.view, None if axes is None else tuple(axes)))]


def unsqueeze(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Unsqueeze."""
    one, axes = tensor(program, inputs[0]), known(inputs, 1, "Unsqueeze", "axes") or []
    return [one.seen_as(np.expand_dims(one.view, tuple(axes)))]


def transpose(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Transpose."""
    one = tensor(program, inputs[0])
    return [one.seen_as(one.view.transpose(attributes.get("perm")))]


def flatten(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Flatten."""
    one = tensor(program, inputs[0])
    axis = attributes.get("axis", 1)
    rows = int(np.prod(one.shape[:axis], dtype=int))
    return [reshaped(program, one, (rows, one.size // max(1, rows)))]


def expand(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Expand."""
    one, shape = tensor(program, inputs[0]), known(inputs, 1, "Expand", "sizes") or []
    return [one.seen_as(np.broadcast_to(one.view, np.broadcast_shapes(one.shape, tuple(shape))))]


def tile(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Tile."""
    one, repeats = tensor(program, inputs[0]), known(inputs, 1, "Tile", "repeats") or []
    spread = np.broadcast_to(
        np.expand_dims(one.view, tuple(range(0, 2 * len(repeats), 2))),
        [size for pair in zip(repeats, one.shape, strict=True) for size in pair],
    )
    shape = [size * times for size, times in zip(one.shape, repeats, strict=True)]
    return [reshaped(program, one.seen_as(spread), shape)]


def slices(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Slice."""
    one = tensor(program, inputs[0])
    starts, ends = (known(inputs, place, "Slice", "limits") or [] for place in (1, 2))
    axes = known(inputs, 3, "Slice", "axes") or list(range(len(starts)))
    steps = known(inputs, 4, "Slice", "steps") or [1] * len(starts)
    cuts = [slice(None)] * len(one.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = one.shape[axis]
        stop: int | None = max(end, -size - 1) if step < 0 else end
        if step < 0 and stop is not None and (stop < -size or end == -(2**63)):
            stop = None
        cuts[axis] = slice(start, stop, step)
    return [one.at((*cuts, Ellipsis))]


def split(program: Program, inputs: Inputs, attributes: Attributes, count: int) -> list[Tensor]:
    """Split."""
    one, sizes = tensor(program, inputs[0]), known(inputs, 1, "Split", "sizes")
    axis = axis_of(attributes.get("axis", 0), len(one.shape))
    if sizes is None:
        each = -(-one.shape[axis] // attributes.get("num_outputs", count))
        ends = list(range(each, one.shape[axis], each))
    else:
        ends = np.cumsum(sizes)[:-1].tolist()
    return [one.seen_as(view) for view in np.split(one.view, ends, axis)]


def identity(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Identity."""
    return [tensor(program, inputs[0])]


def concat(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Concat."""
    parts = [tensor(program, one) for one in inputs]
    axis = axis_of(attributes["axis"], len(parts[0].shape))
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    out, start = program.work(shape, parts[0].kind), 0
    for part in parts:
        end = start + part.shape[axis]
        at = (slice(None),) * axis + (slice(start, end),)
        if part.size:
            program.copy(part, out.at(at))
        start = end
    return [out]


def pad(program: Program, inputs: Inputs, attributes: Attributes, _: int) -> list[Tensor]:
    """Pad, with a constant number."""
    one, pads = tensor(program, inputs[0]), known(inputs, 1, "Pad", "sizes") or []
    if attributes.get("mode", b"constant") != b"constant":
        raise UnsupportedError(f"operation Pad with mode {attributes['mode'].decode()} has no C source")
    axes = known(inputs, 3, "Pad", "axes") or list(range(len(one.shape)))
    before, after = [0] * len(one.shape), [0] * len(one.shape)
    for place, axis in enumerate(axes):
        before[axis], after[axis] = pads[place], pads[place + len(axes)]
    if min(*before, *after) < 0:
        raise UnsupportedError("operation Pad with negative sizes has no C source")
    shape = [b + size + a for b, size, a in zip(before, one.shape, after, strict=True)]
    out = program.work(shape, one.kind)
    value = inputs[2] if len(inputs) > 2 and inputs[2] is not None else np.zeros((), np.float32)
    if one.kind == INTEGER and not isinstance(value, Tensor):
        value = np.asarray(value).astype(np.int64)
    fill = tensor(program, value)
    program.map([fill.seen_as(fill.view.reshape(()))], out, lambda number: number)
    at = tuple(slice(b, b + size) for b, size in zip(before, one.shape, strict=True))
    inside = out.at(at)
    program.map([one], inside, lambda number: number)
    return [out]


OPERATIONS: dict[str, Callable[..., list[Tensor]]] = {
    "Concat": concat,
    "Expand": expand,
    "Flatten": flatten,
    "Identity": identity,
    "Pad": pad,
    "Reshape": reshape,
    "Slice": slices,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
}
