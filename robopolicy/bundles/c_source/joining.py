"""Joins statements, some rows at a time, so that the next one reads what one writes from the cache.

Attention computes tables of tokens by features, one operation after another. The work
memory of a table that no other statement needs has the rows of one round alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from robopolicy.bundles.c_source.arena import arrange
from robopolicy.bundles.c_source.loops import index
from robopolicy.bundles.c_source.products import ROWS
from robopolicy.bundles.c_source.program import Rows, Statement, block
from robopolicy.bundles.c_source.tensors import INTEGER, Buffer, Tensor

NUMBERS = 2048  # of the widest table in a round
LEAST = 4  # rounds


class _Access(NamedTuple):
    """Where a tensor's first row is in its buffer, and how far the next row is behind it."""

    buffer: Buffer
    step: int
    first: int
    last: int


def joined(statements: Sequence[Statement]) -> list[Statement]:
    """The statements in an order with the same results, joined where this takes no more work memory."""
    users = dict[Buffer, set[int]]()
    for number, one in enumerate(statements):
        for buffer in (*one.reads, *one.writes):
            users.setdefault(buffer, set()).add(number)
    groups = _groups(statements)
    result = [statements[number] for group in groups for number in group]
    functions, memory = 0, _memory(statements)
    for group in groups:
        members = [statements[number] for number in group]
        if len(members) < 2 or _largest(members) < LEAST * NUMBERS:
            continue
        only = {one for one, by in users.items() if one.is_work and by <= set(group)}
        place = result.index(members[0])
        together = _together(members, only, f"rows_{functions}")
        changed = [*result[:place], together, *result[place + len(members) :]]
        needed = _memory(changed)
        if needed <= memory:
            result, memory = changed, needed
            functions += 1
    return result if functions else list(statements)


def _memory(statements: Sequence[Statement]) -> int:
    return sum(arrange(statements).sizes.values())


def _groups(statements: Sequence[Statement]) -> list[list[int]]:
    """The numbers of statements, those that may join in one list; in this order results are the same."""
    result, group = list[list[int]](), list[int]()
    for number, one in enumerate(statements):
        members = [statements[place] for place in group]
        if _may_join([*members, one]):
            group.append(number)
        elif members and _is_apart(one, members) and _largest([one]) <= _largest(members):
            result.append([number])
        else:
            result.append(group)
            group = [number] if _may_join([one]) else []
            if not group:
                result.append([number])
    return [one for one in (*result, group) if one]


def _is_apart(one: Statement, others: Sequence[Statement]) -> bool:
    """Whether a statement may come before others."""
    written = {buffer for other in others for buffer in other.writes}
    read = {buffer for other in others for buffer in other.reads}
    return not written.intersection((*one.reads, *one.writes)) and not read.intersection(one.writes)


def _may_join(members: Sequence[Statement]) -> bool:
    """Whether each row of all members needs no other row of what they write."""
    rows = [one.rows for one in members if one.rows]
    if len(rows) < len(members) or len({one.writes[0].shape[0] for one in rows}) > 1:
        return False
    written = {buffer for one in members for buffer in one.writes}
    if any(buffer.is_argument for buffer in written) or any(written.intersection(one.whole) for one in rows):
        return False
    accesses = list(_accesses(rows))
    if any(one.step < 0 for one in accesses):
        return False
    if any(one.step and one.buffer.kind == INTEGER and one.buffer.values is not None for one in accesses):
        return False  # C has these numbers as bytes, if they are small
    for buffer in written:
        touched = [access for access in accesses if access.buffer is buffer]
        span = max(access.last for access in touched) - min(access.first for access in touched)
        if len({access.step for access in touched}) > 1 or span >= touched[0].step:
            return False
    return True


def _accesses(rows: Sequence[Rows]) -> Iterator[_Access]:
    for one in rows:
        for tensor in (*one.writes, *one.reads):
            row = tensor.at((0, Ellipsis))
            far = [(size - 1) * step for size, step in zip(row.shape, row.view.strides, strict=True)]
            behind, ahead = (sum(d for d in far if (d > 0) == sign) for sign in (False, True))
            yield _Access(tensor.buffer, tensor.view.strides[0], row.offset + behind, row.offset + ahead)


def _largest(members: Sequence[Statement]) -> int:
    """The size of the largest table that is written by rows."""
    return max((table.size for one in members if one.rows for table in one.rows.writes), default=0)


def _together(members: Sequence[Statement], only: Collection[Buffer], name: str) -> Statement:
    """One statement that calls the function `name` for some rows in each round.

    `only` are the buffers that no other statement needs.
    """
    rows = [one.rows for one in members if one.rows]
    count = rows[0].writes[0].shape[0]
    width = _largest(members) // count
    fits = [n for n in range(1, count + 1) if count % n == 0 and (n * width <= NUMBERS or n <= ROWS)]
    size = max(fits, key=lambda n: (n % ROWS == 0, n))
    parts = _Parts(rows, size, only)
    code = "".join(block(one.render(*map(parts.of, (*one.writes, *one.reads)))) for one in rows)
    written = {buffer for one in members for buffer in one.writes}
    parameters = ", ".join(
        f"{'' if buffer in written else 'const '}{buffer.kind} *restrict {part}"
        for part, (buffer, _) in parts.arguments.items()
    )
    passed = ", ".join(address for _, address in parts.arguments.values())
    inside = "".join(f"    {line}\n" for line in code.splitlines())
    return Statement(
        f"for (size_t i = 0; i < {count // size}; i++)\n    {name}({passed});\n",
        [parts.small.get(buffer, buffer) for one in members for buffer in one.reads],
        [parts.small.get(buffer, buffer) for one in members for buffer in one.writes],
        function=f"static void {name}({parameters})\n{{\n{inside}}}\n",
    )


class _Parts:
    """What tensors are in one round of `size` rows.

    Attributes:
      arguments: for each parameter of the function its buffer, and its address in round i.
      small: the buffers that replace those of `only`: they have the rows of one round.
    """

    def __init__(self, rows: Sequence[Rows], size: int, only: Collection[Buffer]) -> None:
        self.arguments = dict[str, tuple[Buffer, str]]()
        self.small = dict[Buffer, Buffer]()
        self._size, self._only = size, only
        self._parts = dict[tuple[Buffer, int], tuple[Buffer, int]]()
        ends = dict[tuple[Buffer, int], list[int]]()
        for one in _accesses(rows):
            ends.setdefault((one.buffer, one.step), []).extend((one.first, one.last))
        for (buffer, step), touched in ends.items():
            if step:
                self._add(buffer, step, min(touched), max(touched))
        for buffer in (*(b for b, step in ends if not step), *(b for one in rows for b in one.whole)):
            if buffer.values is None:
                self.arguments[buffer.name] = buffer, buffer.name

    def _add(self, buffer: Buffer, step: int, first: int, last: int) -> None:
        length = (self._size - 1) * step + last - first + 1
        name, address = buffer.name, buffer.name
        if buffer not in self._only:
            name += f"_{len(self.arguments)}"
            address += f" + {index(first, [self._size * step], ['i'])}"
        part = Buffer(name, buffer.kind, length)
        if buffer in self._only:
            self.small[buffer] = part
        self.arguments[name] = buffer, address
        self._parts[buffer, step] = part, first

    def of(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor in one round."""
        step = tensor.view.strides[0]
        if not step:
            return tensor.at(slice(0, self._size))
        part, first = self._parts[tensor.buffer, step]
        start = part.plain.view[tensor.offset - first :]
        shape = (self._size, *tensor.shape[1:])
        return part.plain.seen_as(np.lib.stride_tricks.as_strided(start, shape, tensor.view.strides))
