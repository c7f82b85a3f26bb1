"""Tensors of a graph with static shapes, as strided views of buffers."""

from __future__ import annotations

from dataclasses import dataclass
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

    def at(self, cut: Any) -> Tensor:
        """A part of the view by NumPy's indices; with an ellipsis among them it is never a number."""
        return self.seen_as(self.view[cut])

    @property
    def pointer(self) -> str:
        """The address of its first element, in C."""
        return f"{self.buffer.name} + {self.offset}" if self.offset else self.buffer.name
