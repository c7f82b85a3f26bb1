"""What the operations of a graph read: tensors, and numbers that are known before any step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.tensors import Tensor, UnsupportedError


def tensor(program: Program, value: Any) -> Tensor:
    """An operand as a tensor."""
    return value if isinstance(value, Tensor) else program.constant(value)


def known(inputs: Sequence[Any], place: int, operation: str, name: str) -> list[Any] | None:
    """The numbers of an operand that must be known, flat; None if it is left out."""
    value = inputs[place] if place < len(inputs) else None
    if value is None:
        return None
    if isinstance(value, Tensor):
        raise UnsupportedError(f"operation {operation} with {name} that change from step to step")
    numbers: list[Any] = np.ravel(value).tolist()
    return numbers


def axis_of(axis: int, rank: int) -> int:
    """An axis, counted from the first one."""
    return axis % rank if rank else 0
