"""Checks of settings, which raise ValueError in one line. Every room may import this module."""

import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def from_json(where: str, declared: type, settings: Any) -> Any:
    """The dataclass `declared` from what JSON holds of it; tuples of dataclasses in it are made as well.

    Raises ValueError, beginning with `where`, for a setting that is missing, unknown or of another type, and
    what the dataclass raises.
    """
    if not isinstance(settings, Mapping):
        raise ValueError(f"{where} is {settings!r}: it must be settings by name")
    known = {field.name for field in fields(declared)}
    if settings.keys() != known:
        lacking, odd = sorted(known - settings.keys()), sorted(settings.keys() - known)
        raise ValueError(f"{where} lacks the settings {lacking} and has unknown ones {odd}")
    made = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    for name, wanted in get_type_hints(declared).items():
        inner = get_args(wanted)
        if get_origin(wanted) is tuple and is_dataclass(inner[0]) and isinstance(made[name], tuple):
            part: Any = inner[0]
            made[name] = tuple(
                from_json(f"{where} {name} {index}", part, one) for index, one in enumerate(made[name])
            )
    check_types(where, made, declared)
    return declared(**made)


def check_types(where: str, settings: Mapping[str, Any], declared: type) -> None:
    """Raise ValueError if a setting does not have the type that the class `declared` annotates.

    A list is accepted for a tuple, and an int for a float, since the settings may come from JSON. Names
    without an annotation are ignored. `where` begins the message.
    """
    for name, annotation in get_type_hints(declared).items():
        if name in settings and not _matches(settings[name], annotation):
            spelled = annotation.__name__ if isinstance(annotation, type) else annotation
            raise ValueError(f"{where} {name} is {settings[name]!r}: it must be of type {spelled}")


def _matches(value: Any, annotation: Any) -> bool:
    arguments = get_args(annotation)
    if isinstance(annotation, UnionType):
        return any(_matches(value, one) for one in arguments)
    if get_origin(annotation) is tuple:
        if not isinstance(value, list | tuple):
            return False
        each = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(each) and all(map(_matches, value, each))
    if is_dataclass(annotation) and isinstance(value, Mapping):
        types = get_type_hints(annotation)
        return value.keys() == types.keys() and all(_matches(value[name], types[name]) for name in types)
    if isinstance(value, bool):
        return annotation is bool
    return isinstance(value, int | float if annotation is float else annotation)


def check_count(name: str, value: int, low: int, high: int) -> None:
    """Raise ValueError unless `value` is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= value <= high:
        raise ValueError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")


def check_number(name: str, value: float, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` is a finite number in [low, high]."""
    if not (is_finite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}: it must be a number {_between(low, high)}")


def check_interval(name: str, value: tuple[float, float], low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` holds two finite numbers in [low, high], the smaller one first."""
    ends = tuple(value) if isinstance(value, tuple | list) else ()
    if not (len(ends) == 2 and all(map(is_finite, ends)) and low <= ends[0] <= ends[1] <= high):
        raise ValueError(
            f"{name} is {value!r}: it must be two numbers {_between(low, high)}, the smaller one first"
        )


def is_finite(value: Any) -> bool:
    """Whether `value` is a finite number in the range of a float; False for a bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    # math.isfinite raises OverflowError for an int that is too large for a float.
    return abs(value) <= sys.float_info.max if isinstance(value, int) else math.isfinite(value)


def _between(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
