"""The C statements of a graph in order, with its tensors in work memory and its constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(eq=False)
class Statement:
    """C code that reads buffers and fills others.

    `needs` names the functions of elementary.c that it calls.
    """

    code: str
    reads: Sequence[Buffer]
    writes: Sequence[Buffer]
    needs: frozenset[str] = frozenset()


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

    def add(
        self, code: str, reads: Sequence[Tensor], writes: Sequence[Tensor], needs: Sequence[str] = ()
    ) -> None:
        """Add a statement."""
        self.statements.append(
            Statement(code, [t.buffer for t in reads], [t.buffer for t in writes], frozenset(needs))
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
        nest = loops([target, source])
        if source.kind != target.kind or not nest.sizes or nest.sizes[-1] < 8:
            return self.map([source], target, lambda one: one)
        if any(steps[-1] != 1 for steps in nest.strides):
            return self.map([source], target, lambda one: one)
        to, at = (
            f"{one.buffer.name} + {index(one.offset, steps[:-1], nest.names[:-1])}"
            for one, steps in zip((target, source), nest.strides, strict=True)
        )
        code = f"memcpy({to}, {at}, {nest.sizes[-1]} * sizeof({source.kind}));\n"
        self.add(around(nest.sizes[:-1], nest.names[:-1], code), [source], [target])

    def map(
        self,
        operands: Sequence[Tensor],
        out: Tensor,
        expression: Callable[..., str],
        needs: Sequence[str] = (),
    ) -> None:
        """Fill each element of `out` with `expression` of those of `operands`, which are broadcast."""
        spread = [one.seen_as(np.broadcast_to(one.view, out.shape)) for one in operands]
        nest = loops([out, *spread])
        target, *names = (
            element(tensor, strides) for tensor, strides in zip([out, *spread], nest.strides, strict=True)
        )
        self.add(nest.around(f"{target} = {expression(*names)};\n"), spread, [out], needs)
