"""The C statements of a graph in order, with its tensors in work memory and its constants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.c_source.loops import around, element, index, loops
from robopolicy.bundles.c_source.tensors import (
    BYTE,
    FLOAT,
    INTEGER,
    KINDS,
    Buffer,
    Tensor,
    UnsupportedError,
)


class Rows(NamedTuple):
    """How any rows of a statement are computed: from parts of its tensors along the first axis.

    Attributes:
      render: the code for parts of `writes` and `reads`, in this order.
      writes, reads: tensors with the same size along the first axis.
      whole: buffers that every row reads.
    """

    render: Callable[..., str]
    writes: Sequence[Tensor]
    reads: Sequence[Tensor]
    whole: Sequence[Buffer]


@dataclass(eq=False)
class Statement:
    """C code that reads buffers and fills others.

    Attributes:
      code: in C.
      reads, writes: buffers.
      rows: how it is computed by rows, if it can be.
      function: definition of a function of its own that it calls.
    """

    code: str
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    rows: Rows | None = None
    function: str = ""


@dataclass(eq=False)
class Program:
    """The statements of a graph, in order, and its constants."""

    statements: list[Statement] = field(default_factory=list)
    constants: dict[tuple[str, bytes], Buffer] = field(default_factory=dict)
    made: int = 0

    def work(self, shape: Sequence[int], kind: str) -> Tensor:
        """A new tensor in the work memory, which has no bytes: they become real numbers."""
        self.made += 1
        kind = FLOAT if kind == BYTE else kind
        buffer = Buffer(f"t{self.made}", kind, max(1, int(np.prod(shape, dtype=int))))
        return buffer.plain.seen_as(buffer.plain.view.reshape(tuple(shape)))

    def constant(self, values: NDArray[Any]) -> Tensor:
        """A tensor of constant numbers. Equal ones share a buffer; equal numbers in one become one number."""
        values = np.asarray(values)
        if values.dtype.kind not in KINDS or values.dtype == np.uint64:
            raise UnsupportedError(f"the graph has a constant of type {values.dtype}: it must have numbers")
        kind = KINDS[values.dtype.kind]
        if kind == INTEGER:
            limits = np.iinfo(np.int32)
            flat = np.clip(values.astype(np.int64), limits.min, limits.max).astype(np.int32)
        else:
            flat = values.astype(np.float32)
        shape = flat.shape
        first = flat.reshape(-1)[:1]
        if flat.size and flat.tobytes() == first.tobytes() * flat.size:
            flat = first
        key = (kind, flat.tobytes())
        if key not in self.constants:
            size = max(1, flat.size)
            self.constants[key] = Buffer(f"c{len(self.constants)}", kind, size, np.ravel(flat))
        plain = self.constants[key].plain
        if flat is first:
            return plain.seen_as(np.broadcast_to(plain.view.reshape(()), shape))
        return plain.seen_as(plain.view.reshape(shape))

    def add(self, code: str, reads: Sequence[Tensor], writes: Sequence[Tensor]) -> None:
        """Add a statement."""
        self.statements.append(Statement(code, [t.buffer for t in reads], [t.buffer for t in writes]))

    def add_rows(
        self,
        render: Callable[..., str],
        writes: Sequence[Tensor],
        reads: Sequence[Tensor],
        whole: Sequence[Tensor] = (),
    ) -> None:
        """Add a statement whose rows can be computed one by one, unless `reads` have another first axis."""
        self.add(render(*writes, *reads), [*reads, *whole], writes)
        tensors = [*writes, *reads]
        while all(one.shape[:1] == (1,) for one in tensors):
            tensors = [one.at((0, Ellipsis)) for one in tensors]
        firsts = {one.shape[:1] for one in tensors}
        if len(firsts) == 1 and () not in firsts:
            count = len(writes)
            self.statements[-1].rows = Rows(
                render, tensors[:count], tensors[count:], [one.buffer for one in whole]
            )

    def row(self, tensor: Tensor) -> Tensor:
        """The tensor with its elements in a row: itself, or a copy."""
        if tensor.is_contiguous and tensor.size:
            return tensor
        if tensor.values is not None:
            # Not `constant`: equal numbers must lie in a row, too.
            flat = np.ascontiguousarray(tensor.values)
            key = (f"row of {tensor.kind}", flat.tobytes())
            if key not in self.constants:
                name = f"c{len(self.constants)}"
                self.constants[key] = Buffer(name, tensor.kind, flat.size, flat.reshape(-1))
            plain = self.constants[key].plain
            return plain.seen_as(plain.view.reshape(tensor.shape))
        out = self.work(tensor.shape, tensor.kind)
        self.copy(tensor, out)
        return out

    def copy(self, source: Tensor, target: Tensor) -> None:
        """Fill `target`, which may be a part of a buffer, with the elements of `source`."""
        self.add_rows(_copied, [target], [source])

    def map(self, operands: Sequence[Tensor], out: Tensor, expression: Callable[..., str]) -> None:
        """Fill each element of `out` with `expression` of those of `operands`, which are broadcast."""
        spread = [one.seen_as(np.broadcast_to(one.view, out.shape)) for one in operands]
        self.add_rows(partial(_mapped, expression), [out], spread)


def _copied(target: Tensor, source: Tensor) -> str:
    nest = loops([target, source])
    if source.kind != target.kind or not nest.sizes or nest.sizes[-1] < 8:
        return _mapped(str, target, source)
    if any(steps[-1] != 1 for steps in nest.strides):
        return _mapped(str, target, source)
    if source.kind == INTEGER and source.buffer.values is not None:  # `source.py` may keep these as bytes
        return _mapped(str, target, source)
    to, at = (
        f"{one.buffer.name} + {index(one.offset, steps[:-1], nest.names[:-1])}"
        for one, steps in zip((target, source), nest.strides, strict=True)
    )
    code = f"memcpy({to}, {at}, {nest.sizes[-1]} * sizeof({source.kind}));\n"
    return around(nest.sizes[:-1], nest.names[:-1], code)


def _mapped(expression: Callable[..., str], out: Tensor, *operands: Tensor) -> str:
    nest = loops([out, *operands])
    target, *names = (
        element(tensor, strides) for tensor, strides in zip([out, *operands], nest.strides, strict=True)
    )
    return nest.around(f"{target} = {expression(*names)};\n")


def block(code: str) -> str:
    """The code of a statement; code that declares variables becomes a block."""
    if not re.match(r"(const )?(float|int32_t|uint8_t|size_t|uint32_t) ", code):
        return code
    return "{\n" + "".join(f"    {line}\n" for line in code.splitlines()) + "}\n"
