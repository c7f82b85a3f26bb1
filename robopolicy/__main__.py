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
    sys.unraisablehook = _repeat
    try:
        return run()
    except KeyboardInterrupt:  # before the command began
        print("robopolicy: interrupted", file=sys.stderr)
        return 130


def _interrupt(signum: int, frame: object) -> NoReturn:
    """SIGTERM acts like Ctrl-C: robots are stopped, and incomplete files are removed."""
    raise KeyboardInterrupt


def _repeat(dropped: UnraisableHookArgs) -> None:
    """Interrupt again a moment after Python dropped an interrupt.

    It does so in `__del__` and in callbacks of the garbage collector, such as JAX's.
    """
    if dropped.exc_type is KeyboardInterrupt:
        Timer(0.05, os.kill, (os.getpid(), signal.SIGTERM)).start()
    else:
        sys.__unraisablehook__(dropped)


if __name__ == "__main__":
    sys.exit(main())
