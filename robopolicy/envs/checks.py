"""Refusals of settings that mean nothing, each in one line."""

from __future__ import annotations

import math
from numbers import Real


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


def _between(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
