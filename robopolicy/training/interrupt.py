"""Ctrl-C while training: the first one asks for an end, the second one is one."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C a request, which the function yielded tells of; the second one is as usual."""
    asked = False

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
