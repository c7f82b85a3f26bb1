"""Checks of paths to write, before any work is done."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from robopolicy.writing import DiskFullError, clear_about_full_disks, hidden_beside

LEAST = 4096  # bytes that must be free


def as_path(argument: str, value: Any) -> Path:
    """`value` as a path; raises ValueError unless it is a string or a path."""
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{argument} is {value!r}: it must be a path")
    return Path(value)


def new_folder(argument: str, value: Any) -> Path:
    """`value` as the path of a folder; raises ValueError or DiskFullError if it cannot be written."""
    path = as_path(argument, value)
    try:
        nearest = next(parent for parent in (*path.absolute().parents, Path("/")) if parent.exists())
        is_folder = path.is_dir()
    except OSError as error:  # such as a name that is too long
        raise _not_writable(argument, path, error) from error
    if not nearest.is_dir():
        raise ValueError(f"{argument} is {str(path)!r}: {str(nearest)!r} is a file, and holds no folders")
    for part in (path, *path.parents):
        if part.is_symlink() and not part.exists():
            raise ValueError(
                f"{argument} is {str(path)!r}: {str(part)!r} is a link to {os.readlink(part)!r}, which is "
                "not there"
            )
    if not is_folder:
        _check_name(argument, path, nearest)
    _check_writable(argument, path, path if is_folder else nearest)
    return path


def check_file(argument: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Raise ValueError for a file that cannot be written, DiskFullError on a full disk."""
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ValueError(f"{argument} is {str(path)!r}: its name must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ValueError(f"{argument} is {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise ValueError(f"{argument} is {str(path)!r}: it must be a file, and is a folder")
    _check_name(argument, path, path.parent)
    _check_writable(argument, path, path.parent)


def _check_name(argument: str, path: Path, folder: Path) -> None:
    """Raise ValueError if the name of `path` is too long for the hidden one that is first written.

    `folder` is on the file system that `path` is to be on.
    """
    try:
        with suppress(FileNotFoundError):
            hidden_beside(folder / path.name).lstat()
    except OSError as error:
        raise _not_writable(argument, path, error) from error


def _check_writable(argument: str, path: Path, folder: Path) -> None:
    """Raise ValueError if `path` cannot be written, by a file without a name in `folder`."""
    try:
        with clear_about_full_disks(path), tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LEAST))
    except DiskFullError:
        raise
    except OSError as error:
        raise _not_writable(argument, path, error) from error


def _not_writable(argument: str, path: Path, error: OSError) -> ValueError:
    return ValueError(f"{argument} is {str(path)!r}: nothing can be written there ({error.strerror})")


def check_picture(argument: str, path: Path | None) -> None:
    """Raise ValueError for a picture that cannot be written, ModuleNotFoundError without matplotlib."""
    check_file(argument, path, (".png", ".svg"))
    if path is not None:
        import robopolicy.viz.pictures  # noqa: F401 (imports matplotlib)
