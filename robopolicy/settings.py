"""What every room may import: the check of settings that come back from JSON."""

from collections.abc import Mapping
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints


def check_types(where: str, settings: Mapping[str, Any], declared: type) -> None:
    """Raise ValueError naming the first of `settings` that is not of the type that `declared` annotates.

    JSON has lists for tuples, and may have a whole number for a float. Names that `declared` does not have
    are left to others.
    """
    for name, wanted in get_type_hints(declared).items():
        if name in settings and not _is(settings[name], wanted):
            spelled = wanted.__name__ if isinstance(wanted, type) else wanted
            raise ValueError(f"{where} {name} is {settings[name]!r}: it must be of type {spelled}")


def _is(value: Any, wanted: Any) -> bool:
    inner = get_args(wanted)
    if isinstance(wanted, UnionType):
        return any(_is(value, one) for one in inner)
    if get_origin(wanted) is tuple:
        if not isinstance(value, list | tuple):
            return False
        each = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(each) and all(map(_is, value, each))
    if isinstance(value, bool):
        return wanted is bool
    return isinstance(value, int | float if wanted is float else wanted)
