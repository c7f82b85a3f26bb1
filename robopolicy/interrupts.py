"""Signals that end a drive as Ctrl-C does."""

import signal
from collections.abc import Callable
from typing import Any


def interrupt_on_signals(interrupt: Callable[[int, Any], Any] = signal.default_int_handler) -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, so that they stop a robot safely.

    A closed terminal sends SIGHUP twice, so the second one is ignored: it would cut the stop short. A process
    that ignores SIGHUP, by nohup, keeps ignoring it. Call it in the main thread. `interrupt` is a handler in
    place of Python's.
    """

    def hang_up(signum: int, frame: Any) -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        interrupt(signum, frame)

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, hang_up)
