"""Tables of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def aligned(lines: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> list[str]:
    """Lines of cells as columns of equal width, the columns `left` flush left and the others flush right.

    A negative number counts from the last column.
    """
    count = len(lines[0])
    flush = {column % count for column in left}
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if column in flush else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in lines
    ]
