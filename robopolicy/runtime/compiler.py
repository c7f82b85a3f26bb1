"""Compiles C source into a library that this process calls. It needs a C compiler and no package."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from robopolicy.naming import one_line
from robopolicy.writing import cache_folder, keep, scratch

COMPILERS = ("cc", "gcc", "clang")
EXACT = ("-std=c99", "-ffp-contract=off")
FAST = (*EXACT, "-O2", "-march=native", "-shared", "-fPIC")
SMALL = (*EXACT, "-O2", "-c", "-fstack-usage")
MOST = 100  # libraries in the cache; the least recently used are removed
TIMEOUT = 600.0  # s, of a compilation


class CompilerError(ValueError):
    """There is no C compiler, or it failed, or what it made cannot be loaded. The message is one line."""


class Footprint(NamedTuple):
    """What a compiled source needs, in bytes; None where the compiler's tools do not tell it.

    Attributes:
      code: its instructions and constants.
      stack: the frames of `policy_run` and `graph`, and the three largest others.
    """

    code: int | None
    stack: int | None


def find_compiler() -> list[str] | None:
    """The command of a C compiler: that of $CC, cc, gcc or clang; None without one.

    Raises CompilerError if $CC names a command that does not exist, or has a quotation mark without its pair.
    """
    given = os.environ.get("CC", "")
    try:
        chosen = shlex.split(given)
    except ValueError as error:
        raise CompilerError(
            f"CC is {given!r}: it must be a command, with quotation marks in pairs"
        ) from error
    if chosen:
        if shutil.which(chosen[0]) is None:
            raise CompilerError(f"CC is {given!r}: there is no such command")
        if os.sep in chosen[0]:
            chosen[0] = os.path.abspath(chosen[0])  # compilers run in another folder
        return chosen
    return next(([name] for name in COMPILERS if shutil.which(name)), None)


def compiler() -> list[str]:
    """`find_compiler`. Raises CompilerError without one."""
    command = find_compiler()
    if command is None:
        raise CompilerError(
            f"there is no C compiler: install one of {', '.join(COMPILERS)}, or name one in the variable CC"
        )
    return command


def library(sources: Mapping[str, str]) -> ctypes.CDLL:
    """Compile sources, by file name, for this processor, and load them; the same ones are compiled once.

    Raises CompilerError.
    """
    command = compiler()
    cached = cache_folder("c") / f"{_digest(command, sources)}.so"
    with suppress(OSError):
        loaded = ctypes.CDLL(str(cached))
        with suppress(OSError):  # of a cache that is read only
            os.utime(cached)
        return loaded
    with scratch() as folder:
        made = folder / "policy.so"
        try:
            run(command, FAST, sources, folder, made)
        except CompilerError:
            portable = [flag for flag in FAST if flag != "-march=native"]  # not every compiler has it
            run(command, portable, sources, folder, made)
        keep(cached, made.read_bytes(), MOST)
        with suppress(OSError):  # of a cache that cannot be written
            return ctypes.CDLL(str(cached))
        try:
            return ctypes.CDLL(str(made))
        except OSError as error:
            reason = one_line(str(error).removeprefix(f"{made}: "))
            raise CompilerError(
                f"{command[0]} made a library that cannot be loaded from {str(folder.parent)!r}: {reason}; "
                "if this folder is mounted with noexec, set TMPDIR to another one"
            ) from error


def run(
    command: list[str],
    flags: tuple[str, ...] | list[str],
    sources: Mapping[str, str],
    folder: Path,
    out: Path,
) -> None:
    """Write `sources` to `folder` and compile its C files to `out`. Raises CompilerError."""
    for name, text in sources.items():
        (folder / name).write_text(text, encoding="utf-8")
    files = [str(folder / name) for name in sources if name.endswith(".c")]
    words = [*command, *flags, *files, "-o", str(out)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, cwd=folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"{command[0]} does not compile: {one_line(str(error))}") from error
    if done.returncode:
        lines = done.stderr.splitlines()
        reason = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
        raise CompilerError(f"{command[0]} fails: {one_line(reason.replace(f'{folder}/', ''))}")
    if not out.is_file():
        raise CompilerError(f"{command[0]} is no C compiler: it ends without an error, and writes nothing")


def footprint(sources: Mapping[str, str]) -> Footprint:
    """The size of the code of `policy.c` among `sources` at -O2, and its stack. Raises CompilerError."""
    with scratch() as folder:
        out = folder / "policy.o"
        try:
            run(compiler(), SMALL, sources, folder, out)
        except CompilerError:
            run(compiler(), [flag for flag in SMALL if flag != "-fstack-usage"], sources, folder, out)
        frames = {}
        for file in folder.glob("*.su"):
            for line in file.read_text().splitlines():
                place, size, _ = line.split("\t")
                frames[place.rpartition(":")[2]] = int(size)
        sizes = (
            subprocess.run(["size", str(out)], capture_output=True, text=True)
            if shutil.which("size")
            else None
        )
        code = re.search(r"^\s*(\d+)", sizes.stdout, re.MULTILINE) if sizes else None
    chain = [frames.pop(name, 0) for name in ("policy_run", "graph")] if frames else []
    stack = sum(chain) + sum(sorted(frames.values())[-3:]) if chain else None
    return Footprint(int(code[1]) if code else None, stack)


def _digest(command: list[str], sources: Mapping[str, str]) -> str:
    digest = hashlib.sha256(repr((command, FAST, _version(tuple(command)), _processor())).encode())
    for name, text in sorted(sources.items()):
        digest.update(f"{name} {len(text)}\n{text}".encode())
    return digest.hexdigest()


@cache
def _version(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=TIMEOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompilerError(f"{command[0]} does not compile: {one_line(str(error))}") from error
    return done.stdout


@cache
def _processor() -> str:
    """What -march=native depends on."""
    info = Path("/proc/cpuinfo")
    flags = re.search(r"^(flags|Features|isa)\s*:.*", info.read_text(), re.M) if info.exists() else None
    return f"{platform.machine()} {platform.processor()} {flags[0] if flags else ''}"
