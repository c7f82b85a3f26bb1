"""What all tasks check of what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

from robopolicy.naming import one_of

LONGEST_EPISODE = 86400.0  # s: what happens in an episode may be drawn for all of it at once


def check_pictures(mode: str | None, modes: Sequence[str], size: tuple[int, int]) -> None:
    """Raise ValueError unless `mode` is one of `modes` or None, and `size` a width and a height in pixels."""
    if mode is not None:
        one_of("render_mode", mode, modes)
    sides = tuple(size) if isinstance(size, tuple | list) else ()
    if len(sides) != 2 or not all(isinstance(side, Integral) and side >= 1 for side in sides):
        raise ValueError(f"render_size is {size!r}: it must be a width and a height in pixels")
