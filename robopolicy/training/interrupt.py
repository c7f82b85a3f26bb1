"""Ctrl-C or SIGTERM while training: the first one asks for an end, the second one ends it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A cluster's scheduler and a service manager end what they started by SIGTERM.
REQUESTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C or SIGTERM a request; the yielded function returns whether there was one.

    The second one does what it did before.
    """
    asked = False
    before = {request: signal.getsignal(request) for request in REQUESTS}

    def restore() -> None:
        for request, handler in before.items():
            signal.signal(request, handler)

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        asked = True
        restore()

    try:
        for request in REQUESTS:
            signal.signal(request, ask)
    except ValueError:  # not in the main thread, where signals do not arrive
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        restore()
