"""Names that settings of policies give: of observations, their entries, actions, and sets of weights."""

from __future__ import annotations

import re
from collections.abc import Sequence

NAME = re.compile(r"[^_{}\x00-\x1f\x7f][^{}\x00-\x1f\x7f]{0,99}")


def check_name(what: str, name: str) -> None:
    """Raise ValueError unless `name` is one that parameters and files can bear."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"the name of {what} is {name!r}: it must be 1 to 100 characters, no braces, and no _ in front"
        )


def check_distinct(what: str, names: Sequence[str]) -> None:
    """Raise ValueError naming the first of `names` that comes twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} have the name {name!r} twice: each must be named once")
        seen.add(name)
