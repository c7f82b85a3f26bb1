"""The `robopolicy` command. Each command is a frozen dataclass of its settings with a `run`, in its own file.

A command's file imports nothing heavy at its top, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import operator
import os
import re
import select
import sys
from collections.abc import Sequence
from functools import reduce
from typing import Annotated, Any, get_args

import tyro

from robopolicy.cli.bench_attention import BenchAttention
from robopolicy.cli.bench_env import BenchEnv
from robopolicy.cli.compare import Compare
from robopolicy.cli.demos import Demos
from robopolicy.cli.deploy import Deploy
from robopolicy.cli.doctor import Doctor
from robopolicy.cli.evaluate import Evaluate
from robopolicy.cli.export import Export
from robopolicy.cli.flops import Flops
from robopolicy.cli.inspect import Inspect
from robopolicy.cli.list_runs import ListRuns
from robopolicy.cli.plan import Plan
from robopolicy.cli.plot import Plot
from robopolicy.cli.report import Report
from robopolicy.cli.rollout import Rollout
from robopolicy.cli.train_bc import TrainBC
from robopolicy.cli.train_es import TrainES
from robopolicy.cli.verify import Verify

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

BAD_INPUT_ERRORS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    PermissionError,
    ModuleNotFoundError,  # an engine that is not installed
)
BAD_PLACES = (errno.ENOSPC, errno.EROFS, errno.ENAMETOOLONG)
PAIRS = {"train": ("a trainer", ("es", "bc")), "bench": ("what to time", ("env", "attention"))}

Command = (
    Annotated[TrainES, tyro.conf.subcommand("train es")]
    | Annotated[TrainBC, tyro.conf.subcommand("train bc")]
    | Annotated[Demos, tyro.conf.subcommand("demos")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Rollout, tyro.conf.subcommand("rollout")]
    | Annotated[Flops, tyro.conf.subcommand("flops")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[ListRuns, tyro.conf.subcommand("runs")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Verify, tyro.conf.subcommand("verify")]
    | Annotated[Deploy, tyro.conf.subcommand("deploy")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[BenchEnv, tyro.conf.subcommand("bench env")]
    | Annotated[BenchAttention, tyro.conf.subcommand("bench attention")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns 0 when done, 1 if it failed while running, 2 on bad input."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Whoever was reading has gone, as in `robopolicy --help | head`. What is left to be written at exit
        # must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in PAIRS:  # two words to a person, one name to the parser
        what, names = PAIRS[words[0]]
        if words[1:2] and words[1] in names:
            words = [" ".join(words[:2]), *words[2:]]
        else:
            wanted = ", ".join(f"{words[0]} {name}" for name in names)
            return _complain(f"{words[0]} needs the name of {what}: {wanted}", BAD_INPUT)
    if not words:
        return _complain(f"a command is needed: {', '.join(commands())} (see --help)", BAD_INPUT)
    if words[0] not in (*commands(), "--help", "-h"):
        near = difflib.get_close_matches(words[0], [*commands(), *PAIRS], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return _complain(f"{words[0]!r} is no command{hint} (see --help)", BAD_INPUT)
    parsed, code = _parse(words)
    if parsed is None:
        return code
    try:
        if isinstance(parsed, TrainES | TrainBC) and parsed.resume:
            # What the command line does not say is as the run began, and not the default of a new one.
            parsed, code = _parse(words, parsed.begun())
            if parsed is None:
                return code
        return parsed.run() or DONE
    except BAD_INPUT_ERRORS as error:
        return _complain(_words(error), BAD_INPUT)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            raise
        return _complain(_words(error), BAD_INPUT if error.errno in BAD_PLACES else FAILED)
    except (RuntimeError, ArithmeticError, MemoryError) as error:
        return _complain(_words(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)


def _reader_has_left() -> bool:
    """Whether standard output is a pipe that nobody reads any more: others may have broken, too."""
    watched = select.poll()
    watched.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in watched.poll(0))


def _parse(words: list[str], default: TrainES | TrainBC | None = None) -> tuple[Any, int]:
    """The command that `words` spell, or None and the exit code; the parser's complaint becomes one line.

    `default` says what they leave out.
    """
    complaint = io.StringIO()
    given: Any = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(complaint):
            parsed: Any = tyro.cli(
                Command if words[0] in commands() else _listed(),
                prog="robopolicy",
                args=words,
                description="Vision policies for robots with linear-time attention, priced in FLOPs.",
                config=(tyro.conf.FlagCreatePairsOff,),
                **given,
            )
        return parsed, DONE
    except SystemExit as end:
        if not end.code:
            return None, DONE
        return None, _complain(_parser_words(complaint.getvalue()), BAD_INPUT)


def commands() -> dict[str, type]:
    """The dataclasses of all commands, by name."""
    return {
        part.name: kind.__origin__
        for kind in get_args(Command)
        for part in kind.__metadata__
        if hasattr(part, "prefix_name")
    }


def _listed() -> Any:
    """The commands with one line each, for a list of them all; each tells the rest in its own help."""
    kinds = []
    for name, kind in commands().items():
        about = " ".join(str(kind.__doc__).split("\n\n")[0].split())
        kinds.append(Annotated[kind, tyro.conf.subcommand(name, description=about)])
    return reduce(operator.or_, kinds)


def _parser_words(box: str) -> str:
    """What the parser says in a box of several lines, in one."""
    lines = [line.strip().strip("│|").strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    # The title stands in the upper border, or above it where the terminal has no box characters.
    border = [index for index, line in enumerate(lines) if re.match(r"[╭╰─]|-{3}", line)]
    rest = [line for index, line in enumerate(lines) if border and index > border[0] and index not in border]
    said = [line for line in rest if line and not line.startswith("For full helptext")]
    first = said[0] if said else "the command cannot be read"
    if first.endswith(":") and len(said) > 1:
        first = f"{first} {said[1].split('  ')[0]}"
    near = [line.split()[0] for line in said[1:] if line.startswith("--")][:1]
    hint = f"; did you mean {near[0]}?" if near and first.startswith("Unrecognized") else ""
    return f"{first}{hint} (see --help)"


def _words(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, ModuleNotFoundError) and error.name:  # an import's own words name no remedy
        return f"{error}; see what is missing, and what adds it, with: robopolicy doctor"
    return " ".join(str(error).split()) or type(error).__name__


def _complain(words: str, code: int) -> int:
    print(f"robopolicy: {words}", file=sys.stderr)
    return code
