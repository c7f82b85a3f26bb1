"""Checks of settings, which raise ValueError in one line. Every room may import this module."""

import math
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from robopolicy.naming import shown


def from_json(where: str, declared: Any, settings: Any) -> Any:
    """The dataclass `declared` from its JSON object, with the dataclasses and tuples in it.

    Raises ValueError, beginning with `where`, for a setting that is missing, unknown or of another type, and
    as the dataclass does.
    """
    if not isinstance(settings, Mapping):
        raise ValueError(f"{where} is {shown(settings)}: it must be settings by name")
    known = {field.name for field in fields(declared)}
    if settings.keys() != known:
        missing, unknown = sorted(known - settings.keys()), sorted(settings.keys() - known)
        wrong = [("lacks the settings", missing), ("has the unknown settings", unknown)]
        raise ValueError(f"{where} " + " and ".join(f"{what} {names}" for what, names in wrong if names))
    types = _types(declared)
    values = {name: _built(f"{where} {name}", types.get(name), value) for name, value in settings.items()}
    check_types(where, values, declared)
    return declared(**values)


def _built(where: str, annotation: Any, value: Any) -> Any:
    """A `value` of JSON with the dataclasses that `annotation` has, and tuples in place of lists."""
    if is_dataclass(annotation) and not is_dataclass(value):
        return from_json(where, annotation, value)
    if not isinstance(value, list | tuple):
        return value
    parts = get_args(annotation) if get_origin(annotation) is tuple else ()
    each = parts[:1] * len(value) if parts[1:] == (...,) else parts
    each = each if len(each) == len(value) else (None,) * len(value)
    return tuple(
        _built(f"{where} {i}", kind, one) for i, (kind, one) in enumerate(zip(each, value, strict=True))
    )


def check_fields(settings: Any) -> None:
    """Raise ValueError, beginning with the class's name, if a field of a dataclass has the wrong type."""
    check_types(type(settings).__name__, vars(settings), type(settings))


def check_key(settings: Any) -> None:
    """As `check_fields`, for settings that are keys of dictionaries: ValueError for a list, too."""
    check_fields(settings)
    for name, value in vars(settings).items():
        if isinstance(value, list):
            kind = type(settings).__name__
            raise ValueError(f"{kind} {name} is {shown(value)}: it must be a tuple, not a list")


def check_types(where: str, settings: Mapping[str, Any], declared: Any) -> None:
    """Raise ValueError if a setting does not have the type that the class or function `declared` annotates.

    The settings may come from JSON: a list is accepted for a tuple, and an int for a float. Names without an
    annotation are ignored. `where` begins the message.
    """
    for name, annotation in _types(declared).items():
        if name in settings and not _matches(settings[name], annotation):
            spelled = annotation.__name__ if type(annotation) is type else str(annotation)
            short = re.sub(r"(\w+\.)+(?=\w)", "", spelled)  # without the names of modules
            raise ValueError(f"{where} {name} is {shown(settings[name])}: it must be of type {short}")


@cache
def _types(declared: Any) -> dict[str, Any]:
    return get_type_hints(declared)


def _matches(value: Any, annotation: Any) -> bool:
    arguments = get_args(annotation)
    if isinstance(annotation, UnionType):
        return any(_matches(value, one) for one in arguments)
    if get_origin(annotation) is tuple:
        if not isinstance(value, list | tuple):
            return False
        each = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        return len(value) == len(each) and all(map(_matches, value, each))
    if isinstance(value, bool):
        return annotation is bool
    return isinstance(value, int | float if annotation is float else get_origin(annotation) or annotation)


def check_count(name: str, value: Any, low: int, high: int) -> None:
    """Raise ValueError unless `value` is a whole number from `low` to `high`."""
    if not _is_count(value, low, high):
        raise ValueError(f"{name} is {shown(value)}: it must be a whole number from {low} to {high}")


def check_counts(name: str, values: Iterable[Any], low: int, high: int) -> None:
    """Raise ValueError, with the first wrong one, unless `values` are whole numbers from `low` to `high`."""
    for value in values:
        if not _is_count(value, low, high):
            raise ValueError(f"{name} has {shown(value)}: each must be a whole number from {low} to {high}")


def _is_count(value: Any, low: int, high: int) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral) and low <= int(value) <= high


def check_number(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` is a finite number in [low, high]."""
    if not (is_finite(value) and low <= value <= high):
        raise ValueError(f"{name} is {shown(value)}: it must be a number {_between(low, high)}")


def check_interval(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Raise ValueError unless `value` holds two finite numbers in [low, high], the smaller one first."""
    ends = tuple(value) if isinstance(value, tuple | list) else ()
    if not (len(ends) == 2 and all(map(is_finite, ends)) and low <= ends[0] <= ends[1] <= high):
        raise ValueError(
            f"{name} is {shown(value)}: it must be two numbers {_between(low, high)}, the smaller one first"
        )


def is_finite(value: Any) -> bool:
    """Whether `value` is a finite number in the range of a float; False for a bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    # math.isfinite raises OverflowError for an int that is too large for a float.
    return abs(value) <= sys.float_info.max if isinstance(value, int) else math.isfinite(value)


def check_array(name: str, array: Any, shape: tuple[int, ...], dtype: Any) -> None:
    """Raise ValueError unless `array` has this shape and dtype."""
    is_array = hasattr(array, "shape") and hasattr(array, "dtype")
    if not is_array or array.shape != shape or array.dtype != dtype:
        other = None if array is None else f"of type {type(array).__name__}"
        actual = f"{array.dtype}{list(array.shape)}" if is_array else other
        raise ValueError(f"{name} is {actual}: it must be {dtype}{list(shape)}")


def _between(low: float, high: float) -> str:
    return f"of {low:g} or more" if math.isinf(high) else f"from {low:g} to {high:g}"
