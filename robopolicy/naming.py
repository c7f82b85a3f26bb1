"""What every room may import: the check of a name against those that exist."""

import difflib
from collections.abc import Iterable


def one_of(argument: str, value: str, allowed: Iterable[str]) -> str:
    """`value`, where it is allowed; raises ValueError naming `argument` and the nearest name where not."""
    names = list(allowed)
    if value not in names:
        near = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{argument} is {value!r}: it must be one of {', '.join(names)}{hint}")
    return value
