"""Places of tensors in the work memory: those that are not needed at the same time share theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from robopolicy.bundles.c_source.program import Statement
from robopolicy.bundles.c_source.tensors import FLOAT, INTEGER, Buffer

ALIGNED = 4  # numbers


class Arena(NamedTuple):
    """The work memory.

    Attributes:
      places: of each buffer in the numbers of its type.
      sizes: how many numbers of each type there are.
    """

    places: dict[Buffer, int]
    sizes: dict[str, int]


def needed(statements: Sequence[Statement], results: Iterable[Buffer]) -> list[Statement]:
    """The statements that the results depend on."""
    wanted, kept = set(results), []
    for statement in reversed(statements):
        if wanted.intersection(statement.writes):
            wanted.update(statement.reads)
            kept.append(statement)
    return kept[::-1]


def arrange(statements: Sequence[Statement]) -> Arena:
    """Places for all buffers in work memory: the largest first, each at the lowest free place.

    A place is free if no buffer there is needed at the same time.
    """
    lives: dict[Buffer, list[int]] = {}
    for number, statement in enumerate(statements):
        for buffer in (*statement.writes, *statement.reads):
            if buffer.is_work:
                lives.setdefault(buffer, [number, number])[1] = number
    places: dict[Buffer, int] = {}
    sizes = {FLOAT: 0, INTEGER: 0}
    for buffer in sorted(lives, key=lambda one: (-one.size, lives[one])):
        first, last = lives[buffer]
        taken = sorted(
            (places[other], places[other] + other.size)
            for other in places
            if other.kind == buffer.kind and lives[other][0] <= last and first <= lives[other][1]
        )
        place = 0
        for begin, end in taken:
            if place + buffer.size <= begin:
                break
            place = max(place, -(-end // ALIGNED) * ALIGNED)
        places[buffer] = place
        sizes[buffer.kind] = max(sizes[buffer.kind], place + buffer.size)
    return Arena(places, sizes)
