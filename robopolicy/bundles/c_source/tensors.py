"""Tensors of a graph with static shapes as strided views of buffers, and the statements that fill them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT, INTEGER, BYTE = "float", "int32_t", "uint8_t"
KINDS = {"f": FLOAT, "i": INTEGER, "b": INTEGER, "u": INTEGER}  # of constants, by NumPy's kind


class UnsupportedError(ValueError):
    """A graph has something that has no C source. The message is one line and names it."""


@dataclass(eq=False)
class Buffer:
    """Numbers of one type in a row: work memory, a constant, or an argument of the C function.

    Attributes:
      name: in C.
      kind: type of a number in C.
      size: how many numbers.
      values: of a constant.
      is_argument: whether the caller passes it.
    """

    name: str
    kind: str
    size: int
    values: NDArray[Any] | None = None
    is_argument: bool = False

    @property
    def is_work(self) -> bool:
        """Whether it lies in the work memory."""
        return self.values is None and not self.is_argument

    @cached_property
    def plain(self) -> Tensor:
        """All numbers in a row."""
        return Tensor(self, np.empty(self.size, np.uint8))


@dataclass(frozen=True, eq=False)
class Tensor:
    """A view of a buffer.

    `view` is an array of bytes, one for a number, whose content means nothing: its shape, its strides and its
    place in `buffer.plain.view` are those of the tensor. So NumPy's own functions do all work on layouts.
    """

    buffer: Buffer
    view: NDArray[np.uint8]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.view.shape

    @property
    def size(self) -> int:
        """The number of its elements."""
        return self.view.size

    @property
    def kind(self) -> str:
        """Type of an element in C."""
        return self.buffer.kind

    @property
    def offset(self) -> int:
        """Place of the first element in the buffer."""
        address: int = self.view.__array_interface__["data"][0]
        first: int = self.buffer.plain.view.__array_interface__["data"][0]
        return address - first

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in a row."""
        return self.view.flags.c_contiguous

    @property
    def values(self) -> NDArray[Any] | None:
        """The elements of a constant."""
        if self.buffer.values is None:
            return None
        strides = [stride * self.buffer.values.itemsize for stride in self.view.strides]
        return np.lib.stride_tricks.as_strided(self.buffer.values[self.offset :], self.shape, strides)

    def seen_as(self, view: NDArray[np.uint8]) -> Tensor:
        """Another view of the same buffer."""
        return Tensor(self.buffer, view)

    @property
    def pointer(self) -> str:
        """The address of its first element, in C."""
        return f"{self.buffer.name} + {self.offset}" if self.offset else self.buffer.name


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
        is_whole = source.is_contiguous and target.is_contiguous
        if is_whole and source.kind == target.kind and source.size > 4:
            size = f"{source.size} * sizeof({source.kind})"
            self.add(f"memcpy({target.pointer}, {source.pointer}, {size});\n", [source], [target])
        else:
            self.map([source], target, lambda one: one)

    def map(
        self,
        operands: Sequence[Tensor],
        out: Tensor,
        expression: Callable[..., str],
        needs: Sequence[str] = (),
    ) -> None:
        """Fill each element of `out` with `expression` of those of `operands`, which are broadcast."""
        from robopolicy.bundles.c_source.loops import element, loops

        spread = [one.seen_as(np.broadcast_to(one.view, out.shape)) for one in operands]
        nest = loops([out, *spread])
        target, *names = (element(tensor, strides) for tensor, strides in zip([out, *spread], nest.strides))
        self.add(nest.around(f"{target} = {expression(*names)};\n"), spread, [out], needs)
