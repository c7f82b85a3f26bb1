"""What a resumed run may not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def refuse_changes(
    before: dict[str, Any], now: dict[str, Any], parts: Sequence[str], may_change: Sequence[str]
) -> None:
    """Raise ValueError naming the first setting in which a resumed run differs from what it was.

    `parts` of the two configs are compared, setting by setting but for those that `may_change`.
    """
    for part in parts:
        if part not in before:
            raise ValueError(f"the run to resume has a config.json without {part!r}: another program made it")
        old, new = before[part], now[part]
        if not isinstance(old, dict) or not isinstance(new, dict):
            old, new = {part: old}, {part: new}
        for name in sorted(old.keys() | new.keys()):
            if name not in may_change and old.get(name) != new.get(name):
                raise ValueError(f"{name} is {new.get(name)!r}: the run to resume has {old.get(name)!r}")
