"""Checks of settings: types, lowest values, and what this machine has."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robopolicy.naming import one_line
from robopolicy.settings import check_count, check_types

WORKER = 250_000_000  # bytes of a rollout process with an environment and a policy
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_settings(settings: Any, lowest: Mapping[str, int]) -> None:
    """Check a dataclass that has a field `seed`.

    Raises ValueError, in one line, for a field of another type than annotated, a field below its value in
    `lowest`, or a seed outside of [0, 2^32).
    """
    try:
        check_types(f"{type(settings).__name__}:", vars(settings), type(settings))
    except ValueError as error:  # the value may be an array of many lines
        raise ValueError(one_line(str(error))) from error
    for name, low in lowest.items():
        value = getattr(settings, name)
        if not value >= low:  # NaN, too
            raise ValueError(f"{name} is {value}: it must be {low} or more")
    check_count("seed", settings.seed, 0, 2**32 - 1)


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the limit of its container."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in map(Path, CGROUP_LIMITS):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            sizes.append(int(text))
    return min(sizes)


def check_fits(setting: str, needed: int, what: str) -> None:
    """Raise ValueError if `what` needs `needed` bytes of memory and the machine has less.

    `setting` is the beginning of the message: the argument and its value.
    """
    have = machine_memory()
    if needed > have:
        raise ValueError(
            f"{setting}: {what} needs {needed / 1e9:,.0f} GB of memory, and this machine has {have / 1e9:.0f}"
        )


def check_workers(workers: int, each: int = WORKER) -> None:
    """Raise ValueError for a number of processes, of `each` bytes, that this machine cannot hold."""
    try:
        check_count("workers", workers, 1, max(1, machine_memory() // each))
    except ValueError as error:
        raise ValueError(f"{error}, for which memory suffices") from error
