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
from robopolicy.cli.words import check_words
from robopolicy.naming import extra_with, one_line
from robopolicy.training.allocator import keep_freed_memory
from robopolicy.writing import AGAIN, FULL

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

BAD_INPUT_ERRORS = (
    ValueError,
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    ModuleNotFoundError,  # an engine that is not installed
)
NUMBERS = {  # Python's and the parser's words for a number that is none
    r"invalid literal for int\(\) with base 10: (.*)": "a whole number",
    "could not convert string to float: (.*)": "a number",
    r"no type matching \{None\}\|INT could be instantiated from \[(.*?)\].*": "a whole number",
    r"no type matching \{None\}\|FLOAT could be instantiated from \[(.*?)\].*": "a number",
}
NO_NUMBERS = r"Could not (?:find valid parse for arguments:|parse arguments) \[(.*?)\].*"
BAD_PLACES = (errno.EROFS, errno.ENAMETOOLONG)
PAIRS = {"train": ("a trainer", ("es", "bc"))}


class Entry(NamedTuple):
    """A command: its file in this package, its class there, and a line of description."""

    file: str
    name: str
    about: str


COMMANDS = {
    "train es": Entry("train_es", "TrainES", "Train a policy by evolution strategies."),
    "train bc": Entry("train_bc", "TrainBC", "Clone the behaviour of demonstrations."),
    "grid": Entry("grid", "Grid", "Train a grid of mechanisms and seeds, and compare them."),
    "demos": Entry("demos", "Demos", "Record demonstrations of a task into a dataset."),
    "convert": Entry("convert", "Convert", "Convert a dataset from Minari to LeRobot, or the other way."),
    "evaluate": Entry("evaluate", "Evaluate", "Play unseen episodes and print the results."),
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
ABOUT = "Vision policies for robots with linear-time attention, and a FLOP count for every step."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns 0 when done, 1 on a failure, 2 on bad input, 130 when interrupted."""
    if sys.stdout is None:  # Python's sign of a closed one, whose place the next open file would take
        return _complain("standard output is closed: give it a place, such as a file", FAILED)
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except OSError as error:
        # Python flushes stdout again at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # as in `robopolicy --help | head`
            return FAILED
        full = f"the disk is full; {AGAIN}"
        return _complain(f"standard output: {full if error.errno in FULL else error.strerror}", FAILED)


def _run(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        here = os.getcwd()
    except FileNotFoundError:
        return _complain("the current folder was deleted: change to another one", BAD_INPUT)
    if here not in sys.path:
        sys.path.append(here)  # for the module of --env module:Name-v0
    if words and words[0] in PAIRS:  # the parser has one name for both words
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
    if words[0] == "train bc":
        keep_freed_memory()
    try:
        words = [words[0], *expanded(words[1:], command(words[0]))]
        check_words(words[0], words[1:], command(words[0]))
        parsed, code = _parse(words)
        if parsed is None:
            return code
        if getattr(parsed, "env", None) is not None:
            import_task(parsed.env)
        if getattr(parsed, "resume", False) or getattr(parsed, "resume_from", None) is not None:
            # Options default to the settings of the run.
            parsed, code = _parse(words, parsed.stored_command())
            if parsed is None:
                return code
            parsed = replace(parsed, resume=True)
        return parsed.run() or DONE
    except BAD_INPUT_ERRORS as error:
        return _complain(_words(error), BAD_INPUT)
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            raise
        if error.errno in FULL and error.filename is None:  # printing failed: errors of files have a name
            raise
        return _complain(_words(error), BAD_INPUT if error.errno in BAD_PLACES else FAILED)
    except (ImportError, RuntimeError, ArithmeticError, MemoryError) as error:
        return _complain(_words(error), FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted", INTERRUPTED)


def _reader_has_left() -> bool:
    """Whether standard output is a pipe without a reader; another pipe may have broken instead."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _parse(words: list[str], default: Any = None) -> tuple[Any, int]:
    """The command of a command line, or None and the exit code; an error of the parser becomes one line.

    `default` holds the settings that `words` do not have.
    """
    name, *options = words
    kind = command(name)
    complaint = io.StringIO()
    defaults = {} if default is None else {"default": default}
    # Help shows a flag only as what changes its default; files and resumed runs need both forms.
    brief = (tyro.conf.FlagCreatePairsOff,) if {"-h", "--help"} & set(options) else ()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed = tyro.cli(
                kind,
                prog=f"robopolicy {name}",
                args=options,
                description=f"{getdoc(kind)}\n\n{FILE}",
                config=(*brief, tyro.conf.OmitArgPrefixes),
                **defaults,
            )
        return parsed, DONE
    except SystemExit as end:
        if not end.code:
            return None, DONE
        return None, _complain(_parser_words(complaint.getvalue()), BAD_INPUT)


def import_task(name: str) -> None:
    """Import the module of a user's environment; raises ValueError for a bad name."""
    from robopolicy.envs.registry import check_name

    check_name(name, "env")


def command(name: str) -> type[Any]:
    """The dataclass of a command; its file is imported."""
    entry = COMMANDS[name]
    kind: type[Any] = getattr(import_module(f"robopolicy.cli.{entry.file}"), entry.name)
    return kind


def commands() -> dict[str, type[Any]]:
    """The dataclasses of all commands, by name."""
    return {name: command(name) for name in COMMANDS}


def _listed() -> str:
    """The help of all commands, a line for each."""
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
    """The parser's error in one line; `box` holds it in several lines."""
    lines = [line.strip().strip("│|").strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    # The title is in the upper border, or above it on a terminal without box characters.
    border = [index for index, line in enumerate(lines) if re.match(r"[╭╰─]|-{3}", line)]
    rest = [line for index, line in enumerate(lines) if border and index > border[0] and index not in border]
    text = [line for line in rest if line and not line.startswith("For full helptext")]
    first = text[0] if text else "the command cannot be read"
    if first.startswith("Error parsing"):  # from a nested dataclass
        message, *help_of_option = " ".join(text).split(" Argument helptext:")
        for words, kind in NUMBERS.items():
            if number := re.fullmatch(rf"Error parsing (\S+): {words}", message):
                return f"{number[1]} is {number[2]}: it must be {kind} (see --help)"
        if numbers := re.fullmatch(rf"Error parsing (\S+): {NO_NUMBERS}", message):
            kind = "whole numbers" if re.match(r" --\S+ \[?INT", "".join(help_of_option)) else "numbers"
            return f"{numbers[1]} is {numbers[2]}: it must be {kind} (see --help)"
        message = re.sub(r"^Error parsing \w+: ", "", message)
        return f"{message} (see --help)" if help_of_option else message
    if first.endswith(":") and len(text) > 1:
        first = f"{first} {text[1].split('  ')[0]}"
    near = next((line for line in text[1:] if line.startswith("--")), "")  # a flag has two forms
    likely = difflib.get_close_matches(first.split()[-1], re.findall(r"--[\w-]+", near), 1, 0.0)
    hint = f"; did you mean {likely[0]}?" if likely and first.startswith("Unrecognized") else ""
    return f"{first}{hint} (see --help)"


def _words(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    if isinstance(error, ImportError) and error.name:  # its own message names no remedy
        doctor = "see what is missing, and what adds it, with: robopolicy doctor"
        extra = extra_with(error) if isinstance(error, ModuleNotFoundError) else ""
        return f"{error}; {extra or doctor}"
    return str(error).strip() or type(error).__name__


def _complain(words: str, code: int) -> int:
    print(f"robopolicy: {one_line(words)}", file=sys.stderr)
    return code
