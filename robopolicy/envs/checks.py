"""Refusals of settings that mean nothing, each in one line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real

from robopolicy.naming import one_of


def check_number(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` is a finite number in [low, high]."""
    if not (isinstance(value, Real) and math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}: it must be a number {_between(low, high)}")


def check_interval(name: str, value: tuple[float, float], low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` is two finite numbers in [low, high], the smaller one first."""
    ends = tuple(value) if isinstance(value, tuple | list) else ()
    if not (
        len(ends) == 2
        and all(isinstance(end, Real) and math.isfinite(end) for end in ends)
        and low <= ends[0] <= ends[1] <= high
    ):
        raise ValueError(
            f"{name} is {value!r}: it must be two numbers {_between(low, high)}, the smaller one first"
        )


def check_pictures(mode: str | None, modes: Sequence[str], size: tuple[int, int]) -> None:
    """Raise ValueError unless `mode` is one of `modes` or None, and `size` a width and a height in pixels."""
    if mode is not None:
        one_of("render_mode", mode, modes)
    sides = tuple(size) if isinstance(size, tuple | list) else ()
    if len(sides) != 2 or not all(isinstance(side, Integral) and side >= 1 for side in sides):
        raise ValueError(f"render_size is {size!r}: it must be a width and a height in pixels")


def _between(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
