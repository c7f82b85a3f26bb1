"""Atomic writing of files and folders, and one error for a full disk. Every room may import this module.

A file is written in a hidden folder beside its destination and then moved. The process holds a lock on that
folder. The lock ends with the process, so the next writer can recognise and remove the leftovers of a killed
one.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO

AGAIN = "free some space and run the command again"
ELSEWHERE = "free some space there, or set TMPDIR to another folder"
FULL = (errno.ENOSPC, errno.EDQUOT)
# Errors of file systems without locks, such as some that clusters share.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)
LOCK, SUFFIX = "lock", ".partial"
DIGITS = 8  # of the random part of a hidden folder's name


class DiskFullError(OSError):
    """The disk is full. The message is one line; `filename` is the path that the user gave."""


@contextmanager
def clear_about_full_disks(path: Path, remedy: str = AGAIN, within: Path | None = None) -> Iterator[None]:
    """Convert every error of a full disk into a DiskFullError that names `path` and ends with `remedy`.

    A DiskFullError for another path is raised unchanged, unless that path begins with `within` (default:
    `path`).
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, DiskFullError):
            convert = str(error.filename).startswith(str(within or path))
        else:
            convert = getattr(error, "errno", None) in FULL or os.strerror(errno.ENOSPC) in str(error)
        if not convert:
            raise
        free = shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free
        message = f"the disk is full ({free / 1e6:,.1f} MB free); {remedy}"
        raise DiskFullError(errno.ENOSPC, message, str(path)) from error


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file or folder, and move it to `path` at the end.

    On an error nothing is left behind. Leftovers of killed processes are removed first. Raises DiskFullError.
    """
    hidden = path.with_name(f".{path.name}.")
    with clear_about_full_disks(path):
        try:
            _sweep(path)
            with _hidden_folder(path) as folder:
                yield folder / path.name
                os.replace(folder / path.name, path)
        except OSError as error:
            if str(error.filename).startswith(str(hidden)):
                error.filename = str(path)  # users do not know the hidden path
                del error.filename2  # the destination of a move, which is `path` again
            raise


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path`. At any time the file holds the old or the new content, never a part."""
    with whole(path) as partial:
        _write(partial, text)


def write_new(path: Path, text: str) -> None:
    """Write `text` to a file that must not exist, whole. Raises FileExistsError if it exists.

    Of several processes that do so at the same time, one succeeds.
    """
    with whole(path) as partial:
        _write(partial, text)
        try:
            os.link(partial, path)  # `whole` then moves the file onto itself
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            path.touch(exist_ok=False)


def _write(path: Path, text: str) -> None:
    """Write `text` to `path`, and wait until it is on the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder that is removed at the end. Those of killed processes are removed first.

    Raises DiskFullError if the disk of temporary files is full.
    """
    temporary = Path(tempfile.gettempdir())
    with ExitStack() as stack:
        with clear_about_full_disks(temporary, ELSEWHERE):
            _sweep(temporary / "robopolicy")
            folder = stack.enter_context(_hidden_folder(temporary / "robopolicy"))
        with clear_about_full_disks(temporary, ELSEWHERE, within=folder):
            yield folder


def _sweep(path: Path) -> None:
    """Remove the hidden folders of `path` that no process holds."""
    for folder in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * DIGITS}{SUFFIX}"):
        # A folder stays if it is locked, if it belongs to another user, or without support for locks.
        with suppress(OSError), (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)


def hidden_beside(path: Path) -> Path:
    """A new path for the hidden folder in which `path` is written."""
    return path.with_name(f".{path.name}.{secrets.token_hex(DIGITS // 2)}{SUFFIX}")


@contextmanager
def _hidden_folder(path: Path) -> Iterator[Path]:
    """A hidden, locked folder beside `path` that is removed at the end."""
    with ExitStack() as stack:
        while True:
            folder = hidden_beside(path)
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            folder.mkdir(0o700)
            lock = stack.enter_context((folder / LOCK).open("w"))
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_nlink:  # 0 if another process removed it before the lock
                break
        yield folder


def lock_now(file: IO[str], kind: int) -> bool:
    """Lock a file without waiting; returns whether that succeeded. For LOCK_EX it must be open for writing.

    The lock ends with the process. Without support for locks, the file counts as free, and a line on stderr
    says so if the lock is exclusive.
    """
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        if kind == fcntl.LOCK_EX:
            _say_no_locks(os.path.dirname(file.name) or os.curdir)
    return True


@cache
def _say_no_locks(folder: str) -> None:
    """Print a line on stderr, once for each folder."""
    print(
        f"the file system of {folder!r} has no locks: write to this folder from one process at a time",
        file=sys.stderr,
    )


def cache_folder(name: str) -> Path:
    """The folder `name` of this package in the user's cache; it need not exist, and cannot without a home."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder if os.path.isabs(folder) else os.devnull) / "robopolicy" / name


def keep(cached: Path, content: bytes, most: int) -> None:
    """Write a file of a cache. Beyond `most` files of its kind, the least recently used are removed.

    A cache that cannot be written only costs time.
    """
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        with whole(cached) as partial:
            partial.write_bytes(content)
        used = sorted(cached.parent.glob(f"*{cached.suffix}"), key=lambda file: file.stat().st_mtime)
        for old in used[:-most]:
            old.unlink()
