"""`python -m robopolicy.runtime`: the commands for a robot, without any dependency for their parser."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import NoReturn

from robopolicy import __version__
from robopolicy.naming import one_line
from robopolicy.runtime.link import LOOPBACK
from robopolicy.runtime.policy import ONNX, RUNTIMES
from robopolicy.runtime.protocol import ProtocolError
from robopolicy.runtime.serve import SILENCE, serve
from robopolicy.runtime.verify import CALLS, verify

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
COMMANDS = ("verify", "serve")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        return _fail(
            f"{arguments[0]!r} is not a command of the runtime, which has {' and '.join(COMMANDS)}: "
            "robopolicy[all] has the others",
            BAD_INPUT,
        )
    try:
        options = _parser().parse_args(arguments)
        if options.command == "serve":
            answered = serve(
                *(options.bundle, options.port, options.host, options.silence),
                on_progress=_log,
                runtime=options.runtime,
            )
            print(f"{answered} observations answered", file=sys.stderr)
            return DONE
        verdict = verify(options.bundle, options.calls, _log, options.runtime)
        print(json.dumps(verdict.as_dict()) if options.json else verdict.as_text())
        return DONE if verdict.same and verdict.in_time else FAILED
    except (ProtocolError, ConnectionError, ArithmeticError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, FAILED)
    except (ValueError, OSError) as error:
        return _fail(str(error), BAD_INPUT)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise ValueError, which `main` prints in one line. argparse would print three and exit."""
        raise ValueError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="robopolicy", description="Runs exported policies. robopolicy[all] has the other commands."
    )
    parser.add_argument("--version", action="version", version=f"robopolicy {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    verify_parser = commands.add_parser("verify", help="check a bundle's outputs and latency on this machine")
    verify_parser.add_argument("bundle", help="the folder that export wrote")
    verify_parser.add_argument("--calls", type=int, default=CALLS, help="number of timed calls (%(default)s)")
    verify_parser.add_argument("--json", action="store_true", help="print the result as JSON")
    serve_parser = commands.add_parser("serve", help="answer a robot's observations")
    serve_parser.add_argument("bundle", help="the folder that export wrote")
    serve_parser.add_argument("--port", type=int, required=True, help="port that the robot listens on")
    serve_parser.add_argument("--host", default=LOOPBACK, help="default: %(default)s")
    serve_parser.add_argument("--silence", type=float, default=SILENCE, help="s until a silent robot is lost")
    for one in (verify_parser, serve_parser):
        one.add_argument(
            "--runtime", choices=RUNTIMES, default=ONNX, help="default: %(default)s; c compiles it"
        )
    return parser


def _log(step: str) -> None:
    print(f"{one_line(step)} ...", file=sys.stderr, flush=True)


def _fail(message: str, code: int) -> int:
    print(f"robopolicy: {one_line(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
