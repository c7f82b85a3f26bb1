"""`python -m robopolicy`, and the `robopolicy` command."""

import signal
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from typing import NoReturn


def main() -> int:
    """All commands, or those of the runtime where nothing else is installed, as on a robot.

    `doctor` works even where what is installed is so broken that no other command can be imported.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what a terminal cannot show is a question mark, not an error
            stream.reconfigure(errors="replace")
    asked = sys.argv[1:]
    try:
        if find_spec("tyro") is None and asked[:1] != ["doctor"]:
            from robopolicy.runtime.__main__ import main as run
        else:
            from robopolicy.cli import main as run
    except Exception as error:  # what is installed may be broken in any way
        if asked[:1] == ["doctor"]:
            from robopolicy.doctor.findings import report

            return report("--json" in asked)
        print(f"robopolicy: {error}; see what is missing with: robopolicy doctor", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, _interrupt)  # not before: an import that is broken off says a page of words
    try:
        return run()
    except KeyboardInterrupt:  # before the command had begun
        print("robopolicy: interrupted", file=sys.stderr)
        return 130


def _interrupt(signum: int, frame: object) -> NoReturn:
    """SIGTERM does what Ctrl-C does: robots are halted, and what is half written is taken away."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
