"""`python -m robopolicy`, and the `robopolicy` command."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from typing import TYPE_CHECKING, NoReturn

from robopolicy.interrupts import interrupt_on_signals

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

MOMENT = 0.05  # s, until an interrupt is repeated


def main() -> int:
    """Run a command line: all commands, or those of the runtime if only the runtime is installed.

    `doctor` runs even if no other command can be imported. Returns the exit code.
    """
    if sys.stderr is None:  # Python's sign of a closed one; what is meant for it would go to stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.set_inheritable(2, True)
        sys.stderr = os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal shows "?" for other characters
            stream.reconfigure(errors="replace")
    words = sys.argv[1:]
    try:
        if find_spec("tyro") is None and words[:1] != ["doctor"]:
            from robopolicy.runtime.__main__ import main as run
        else:
            from robopolicy.cli import main as run
    except KeyboardInterrupt:
        return _interrupted()
    except Exception as error:  # an installation may be broken in any way
        if words[:1] == ["doctor"]:
            from robopolicy.doctor.findings import report

            return report("--json" in words)
        print(f"robopolicy: {error}; see what is missing with: robopolicy doctor", file=sys.stderr)
        return 1
    interrupt_on_signals(_interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it is ignored in the background
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGALRM, _repeat)
    sys.unraisablehook = _report
    try:
        return run()
    except KeyboardInterrupt:  # before the command began
        return _interrupted()
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_IGN)


def _interrupted() -> int:
    print("robopolicy: interrupted", file=sys.stderr)
    return 130


class _Pending:
    """A part of an interrupt, which repeats the interrupt if it is dropped before the command has ended.

    Libraries drop interrupts by `except: pass`, as JAX does while it traces. Python drops them in `__del__`
    and in callbacks of the garbage collector.
    """

    def __del__(self) -> None:
        """The interrupt is gone: it was dropped, or the command has ended."""
        if signal.getsignal(signal.SIGALRM) is _repeat:
            signal.setitimer(signal.ITIMER_REAL, MOMENT)


def _interrupt(signum: int, frame: object) -> NoReturn:
    """SIGTERM and SIGHUP act like Ctrl-C: robots are stopped, and incomplete files are removed."""
    raise KeyboardInterrupt(_Pending())


def _repeat(signum: int, frame: object) -> None:
    """Interrupt again, but not while an error is handled, since cleaning up must not be interrupted."""
    if sys.exc_info()[0] is None:
        signal.raise_signal(signal.SIGTERM)
    else:
        signal.setitimer(signal.ITIMER_REAL, MOMENT)


def _report(dropped: UnraisableHookArgs) -> None:
    """Print an error that Python dropped, but not an interrupt, which is repeated."""
    if not issubclass(dropped.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(dropped)


if __name__ == "__main__":
    exit_code = main()
    # Python remembers an interrupt that has passed through `exec` of a string, as in dataclasses, and would
    # end itself by SIGINT. The next evaluation of a string makes it forget.
    eval("0")
    sys.exit(exit_code)
