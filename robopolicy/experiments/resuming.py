"""How a run is resumed: what may not change, and where it continues."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.resume import resume_point, set_aside


def refuse_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], parts: Sequence[str], may_change: Sequence[str]
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


def check_resume(
    folder: RunFolder, counter: str, total: int, resume_from: int | None, on_resume: Callable[[int], None]
) -> None:
    """Check that a run can be resumed, after `resume_from` where that is given, and call `on_resume`.

    Raises ValueError or CheckpointError, in one line, where it cannot be.
    """
    with folder.held():
        if resume_from is not None:
            set_aside(folder, counter, resume_from)
        done = resume_point(folder, counter)
    if done < total:
        on_resume(done + 1)
