"""The `robopolicy` command line: parser, progress, and a file for each command.

A command is a frozen dataclass of its options with a `run`. `robopolicy` imports only the file of the command
that it runs.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import os
import re
import select
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from inspect import getdoc
from typing import Any, NamedTuple

import tyro

from robopolicy import __version__
from robopolicy.cli.config_file import expanded
from robopolicy.naming import one_line
from robopolicy.writing import AGAIN, FULL

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

BAD_INPUT_ERRORS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    PermissionError,
    ModuleNotFoundError,  # an engine that is not installed
)
LISTS = {"train es": ("--preset", "--advance-at", "--episodes")}  # options of several values
BAD_PLACES = (errno.EROFS, errno.ENAMETOOLONG)
PAIRS = {"train": ("a trainer", ("es", "bc"))}


class Entry(NamedTuple):
    """Where a command is: its file in this package and its class there; and what it does, in a line."""

    file: str
    name: str
    about: str


COMMANDS = {
    "train es": Entry("train_es", "TrainES", "Train a policy by evolution strategies."),
    "train bc": Entry("train_bc", "TrainBC", "Clone the behaviour of demonstrations."),
    "demos": Entry("demos", "Demos", "Record demonstrations of a task into a Minari dataset."),
    "evaluate": Entry("evaluate", "Evaluate", "Play unseen episodes and print how they went."),
    "rollout": Entry("rollout", "Rollout", "Film an episode of one policy or of several side by side."),
    "flops": Entry("flops", "Flops", "Print the FLOPs of one policy step, part by part."),
    "plan": Entry("plan", "Plan", "Find the attention that a budget of FLOPs buys."),
    "compare": Entry("compare", "Compare", "Play runs on the same unseen episodes."),
    "plot": Entry("plot", "Plot", "Draw the learning curves of runs."),
    "report": Entry("report", "Report", "Write a page about runs, to send to someone."),
    "runs": Entry("list_runs", "ListRuns", "List the runs in a folder."),
    "inspect": Entry("inspect", "Inspect", "Show what a run, a bundle or a dataset holds."),
    "export": Entry("export", "Export", "Write a run's policy as a bundle that a robot runs."),
    "verify": Entry("verify", "Verify", "Check that a bundle works on this machine, and in time."),
    "deploy": Entry("deploy", "Deploy", "Let a bundle drive a robot in real time."),
    "doctor": Entry("doctor", "Doctor", "Check what works on this machine."),
}
FILE = "Options may also come from a TOML file: --config FILE."
ABOUT = "Vision policies for robots with linear-time attention, priced in FLOPs."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns 0 when done, 1 if it failed while running, 2 on bad input."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except OSError as error:
        # What is left to be written at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # its reader has gone, as in `robopolicy --help | head`
            return FAILED
        full = f"the disk is full; {AGAIN}"
        return _complain(f"standard output: {full if error.errno in FULL else error.strerror}", FAILED)


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where the module of --env module:Name-v0 may be
    if words and words[0] in PAIRS:  # two words to a person, one name to the parser
        what, names = PAIRS[words[0]]
        if words[1:2] and words[1] in names:
            words = [" ".join(words[:2]), *words[2:]]
        else:
            wanted = ", ".join(f"{words[0]} {name}" for name in names)
            return _complain(f"{words[0]} needs the name of {what}: {wanted}", BAD_INPUT)
    if not words:
        return _complain(f"a command is needed: {', '.join(COMMANDS)} (see --help)", BAD_INPUT)
    if words[0] == "--version":
        print(f"robopolicy {__version__}")
        return DONE
    if words[0] in ("--help", "-h"):
        print(_listed())
        return DONE
    if words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], [*COMMANDS, *PAIRS], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return _complain(f"{words[0]!r} is no command{hint} (see --help)", BAD_INPUT)
    try:
        words = [words[0], *expanded(words[1:], command(words[0]))]
        for option in LISTS.get(words[0], ()):
            if words.count(option) > 1:
                raise ValueError(
                    f"{option} is given {words.count(option)} times: it takes all values at once"
                )
        parsed, code = _parse(words)
        if parsed is None:
            return code
        if getattr(parsed, "env", None) is not None:
            import_task(parsed.env)
        if getattr(parsed, "resume", False) or getattr(parsed, "resume_from", None) is not None:
            # What the command line leaves out is as the run began, and not the default of a new run.
            parsed, code = _parse(words, parsed.begun())
            if parsed is None:
                return code
            parsed = replace(parsed, resume=True)
        return parsed.run() or DONE
    except BAD_INPUT_ERRORS as error:
        return _complain(_words(error), BAD_INPUT)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            raise
        if error.errno in FULL and error.filename is None:  # of what is printed: files are told by name
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


def _parse(words: list[str], default: Any = None) -> tuple[Any, int]:
    """The command that `words` spell, or None and the exit code; the parser's complaint becomes one line.

    `default` holds the settings that `words` leave out.
    """
    name, *options = words
    kind = command(name)
    complaint = io.StringIO()
    given = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                kind,
                prog=f"robopolicy {name}",
                args=options,
                description=f"{getdoc(kind)}\n\n{FILE}",
                config=(tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes),
                **given,
            )
        return parsed, DONE
    except SystemExit as end:
        if not end.code:
            return None, DONE
        return None, _complain(_parser_words(complaint.getvalue()), BAD_INPUT)


def import_task(name: str) -> None:
    """Import the module of an environment of one's own; raises ValueError for a name without one."""
    from robopolicy.envs.registry import check_name

    check_name(name, "env")


def command(name: str) -> type[Any]:
    """The dataclass of a command; its file is imported."""
    entry = COMMANDS[name]
    found: type[Any] = getattr(import_module(f"robopolicy.cli.{entry.file}"), entry.name)
    return found


def commands() -> dict[str, type[Any]]:
    """The dataclasses of all commands, by name."""
    return {name: command(name) for name in COMMANDS}


def _listed() -> str:
    """All commands with a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {entry.about}" for name, entry in COMMANDS.items()]
    return "\n".join(
        [
            "usage: robopolicy COMMAND [OPTIONS]",
            "",
            ABOUT,
            "",
            *lines,
            "",
            "robopolicy COMMAND --help shows the options of a command; --version prints the version.",
        ]
    )


def _parser_words(box: str) -> str:
    """What the parser says in a box of several lines, in one."""
    lines = [line.strip().strip("│|").strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    # The title stands in the upper border, or above it where the terminal has no box characters.
    border = [index for index, line in enumerate(lines) if re.match(r"[╭╰─]|-{3}", line)]
    rest = [line for index, line in enumerate(lines) if border and index > border[0] and index not in border]
    said = [line for line in rest if line and not line.startswith("For full helptext")]
    first = said[0] if said else "the command cannot be read"
    if first.startswith("Error parsing"):  # a nested dataclass refuses its settings
        return re.sub(r"^Error parsing \w+: ", "", " ".join(said))
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
    return str(error).strip() or type(error).__name__


def _complain(words: str, code: int) -> int:
    print(f"robopolicy: {one_line(words)}", file=sys.stderr)
    return code
