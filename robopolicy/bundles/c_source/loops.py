"""Loops of C over the elements of several tensors of one shape, as few as their layouts allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robopolicy.bundles.c_source.tensors import FLOAT, Tensor


class Nest(NamedTuple):
    """Loops, the outermost first.

    Attributes:
      sizes: rounds of each loop.
      strides: of each tensor, for each loop: how far its elements are apart.
      names: of the loops' counters.
    """

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]

    def around(self, body: str) -> str:
        """The loops around the lines `body`."""
        return around(self.sizes, self.names, body)


def around(sizes: Sequence[int], names: Sequence[str], body: str) -> str:
    """Loops of `sizes` rounds with counters `names` around the lines `body`."""
    for size, name in zip(reversed(sizes), reversed(names), strict=True):
        inside = "".join(f"    {line}\n" for line in body.splitlines())
        body = f"for (size_t {name} = 0; {name} < {size}; {name}++) {{\n{inside}}}\n"
    return body


def loops(tensors: Sequence[Tensor], prefix: str = "i") -> Nest:
    """Loops over the elements of tensors of one shape, in the order of rows."""
    shape = tensors[0].shape
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in tensors]
    for axis, size in enumerate(shape):
        steps = [tensor.view.strides[axis] for tensor in tensors]
        if size == 1:
            continue
        if sizes and all(one[-1] == size * step for one, step in zip(strides, steps, strict=True)):
            sizes[-1] *= size
            for one, step in zip(strides, steps, strict=True):
                one[-1] = step
        else:
            sizes.append(size)
            for one, step in zip(strides, steps, strict=True):
                one.append(step)
    names = tuple(f"{prefix}{place}" for place in range(len(sizes)))
    return Nest(tuple(sizes), tuple(map(tuple, strides)), names)


def index(offset: int, strides: Sequence[int], names: Sequence[str]) -> str:
    """The place `offset` + the sum of strides times counters, in C."""
    terms = [str(offset)] if offset else []
    for stride, name in zip(strides, names, strict=True):
        if stride > 0:
            terms.append(name if stride == 1 else f"{stride} * {name}")
    text = " + ".join(terms) or "0"
    for stride, name in zip(strides, names, strict=True):
        if stride < 0:
            text += f" - {-stride} * {name}"
    return text


def element(tensor: Tensor, strides: Sequence[int], prefix: str = "i") -> str:
    """An element of a tensor in loops, in C; a constant that is the same everywhere is its number."""
    if tensor.values is not None and not any(strides):
        return literal(tensor.values.reshape(-1)[0], tensor.kind)
    names = [f"{prefix}{place}" for place in range(len(strides))]
    return f"{tensor.buffer.name}[{index(tensor.offset, strides, names)}]"


def literal(value: object, kind: str) -> str:
    """A number in C, exact."""
    if kind != FLOAT:
        whole = int(value)  # type: ignore[call-overload]
        return "(-2147483647 - 1)" if whole == -(2**31) else f"({whole})" if whole < 0 else str(whole)
    number = np.float32(value)  # type: ignore[arg-type]
    if np.isnan(number):
        return "(0.0f / 0.0f)"
    if np.isinf(number):
        return "(1.0f / 0.0f)" if number > 0 else "(-1.0f / 0.0f)"
    text = float(number).hex()
    mantissa, exponent = text.split("p")
    mantissa = mantissa.rstrip("0") if "." in mantissa else mantissa
    mantissa += "0" if mantissa.endswith(".") else ""
    if float(number) == int(number) and abs(number) < 1e6 and not (number == 0 and np.signbit(number)):
        text = f"{int(number)}.0f"
    else:
        text = f"{mantissa}p{exponent}f"
    return f"({text})" if text.startswith("-") else text
