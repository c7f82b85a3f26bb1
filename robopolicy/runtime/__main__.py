"""`python -m robopolicy.runtime`: the commands that a robot needs, by the standard library's parser."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from robopolicy.runtime.link import LOOPBACK
from robopolicy.runtime.protocol import ProtocolError
from robopolicy.runtime.serve import SILENCE, serve
from robopolicy.runtime.verify import CALLS, verify

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
NAMES = ("verify", "serve")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns 0 when done, 1 if it failed while running, 2 on bad input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and not words[0].startswith("-") and words[0] not in NAMES:
        return _complain(
            f"{words[0]!r} is no command of the runtime, which has {' and '.join(NAMES)}: others come with "
            "robopolicy[all]",
            BAD_INPUT,
        )
    try:
        given = _parser().parse_args(words)
        if given.command == "serve":
            answered = serve(given.bundle, given.port, given.host, given.silence)
            print(f"{answered} observations answered", file=sys.stderr)
            return DONE
        verdict = verify(given.bundle, given.calls, lambda part: print(f"{part} ...", file=sys.stderr))
        print(json.dumps(verdict.told()) if given.json else verdict.words())
        return DONE if verdict.same and verdict.in_time else FAILED
    except (ProtocolError, ConnectionError, ArithmeticError, MemoryError) as error:
        return _complain(str(error) or type(error).__name__, FAILED)
    except (ValueError, OSError) as error:
        return _complain(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """In one line, in place of three and an exit."""
        raise ValueError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="robopolicy", description="Runs exported policies. robopolicy[all] has the other commands."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    verifying = commands.add_parser("verify", help="whether a bundle does here what it did where it was made")
    verifying.add_argument("bundle", help="the folder that export wrote")
    verifying.add_argument("--calls", type=int, default=CALLS, help="calls to time (default: %(default)s)")
    verifying.add_argument("--json", action="store_true", help="print the result as JSON")
    serving = commands.add_parser("serve", help="answer a robot's observations")
    serving.add_argument("bundle", help="the folder that export wrote")
    serving.add_argument("--port", type=int, required=True, help="where the robot listens")
    serving.add_argument("--host", default=LOOPBACK, help="default: %(default)s")
    serving.add_argument("--silence", type=float, default=SILENCE, help="seconds of it that end it all")
    return parser


def _complain(words: str, code: int) -> int:
    print(f"robopolicy: {words}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
