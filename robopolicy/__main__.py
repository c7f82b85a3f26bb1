"""`python -m robopolicy`, and the `robopolicy` command."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from threading import Timer
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs


def main() -> int:
    """Run a command line: all commands, or those of the runtime if only the runtime is installed.

    `doctor` runs even if no other command can be imported. Returns the exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal shows "?" for other characters
            stream.reconfigure(errors="replace")
    words = sys.argv[1:]
    try:
        if find_spec("tyro") is None and words[:1] != ["doctor"]:
            from robopolicy.runtime.__main__ import main as run
        else:
            from robopolicy.cli import main as run
    except Exception as error:  # an installation may be broken in any way
        if words[:1] == ["doctor"]:
            from robopolicy.doctor.findings import report

            return report("--json" in words)
        print(f"robopolicy: {error}; see what is missing with: robopolicy doctor", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _interrupt)  # an interrupted import would print a traceback
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is ignored in the background
        signal.signal(signal.SIGINT, _interrupt)
    sys.unraisablehook = _report
    try:
        return run()
    except KeyboardInterrupt:  # before the command began
        print("robopolicy: interrupted", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


class _Interrupt(KeyboardInterrupt):
    """An interrupt that is repeated if it is dropped before the command has ended.

    Libraries drop interrupts by `except: pass`, as JAX does while it traces. Python drops them in `__del__`
    and in callbacks of the garbage collector.
    """

    def __del__(self) -> None:
        """Send SIGTERM a moment later, unless the command has ended."""
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            repeat = Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM))
            repeat.daemon = True
            repeat.start()


def _interrupt(signum: int, frame: object) -> NoReturn:
    """SIGTERM acts like Ctrl-C: robots are stopped, and incomplete files are removed."""
    raise _Interrupt


def _report(dropped: UnraisableHookArgs) -> None:
    """Print an error that Python dropped, but not an interrupt, which is repeated."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)


if __name__ == "__main__":
    sys.exit(main())
