"""What this machine can hold: settings beyond it are refused before a run is made."""

from __future__ import annotations

import os
from pathlib import Path

WORKER = 250_000_000  # bytes of a rollout process with an environment and a policy
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int:
    """Bytes of memory that this process may use: the machine's, or the limit of its container."""
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for limit in map(Path, CGROUP_LIMITS):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            sizes.append(int(text))
    return min(sizes)


def check_fits(setting: str, needed: int, what: str) -> None:
    """Raise ValueError where `what` needs `needed` bytes of memory and the machine has less.

    `setting` is how the message begins: the argument and its value.
    """
    have = machine_memory()
    if needed > have:
        raise ValueError(
            f"{setting}: {what} needs {needed / 1e9:,.0f} GB of memory, and this machine has {have / 1e9:.0f}"
        )


def check_workers(workers: int) -> None:
    """Raise ValueError for a number of processes that this machine cannot hold."""
    most = max(1, machine_memory() // WORKER)
    if not 1 <= workers <= most:
        raise ValueError(f"workers is {workers}: it must be from 1 to {most}, for which memory suffices")
