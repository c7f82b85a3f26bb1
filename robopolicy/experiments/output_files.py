"""Files that commands are asked to write, looked at before there is anything to write."""

from __future__ import annotations

import tempfile
from pathlib import Path

from robopolicy.writing import DiskFullError, clear_about_full_disks

LEAST = 4096  # bytes, without which there is no use in beginning


def check_file(argument: str, path: Path | None, suffixes: tuple[str, ...]) -> None:
    """Raise ValueError for a file that could not be written."""
    if path is None:
        return
    if path.suffix not in suffixes:
        raise ValueError(f"{argument} is {str(path)!r}: its name must end in {' or '.join(suffixes)}")
    if not path.parent.is_dir():
        raise ValueError(f"{argument} is {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    if path.is_dir():
        raise ValueError(f"{argument} is {str(path)!r}: it must be a file, and is a folder")
    try:
        with clear_about_full_disks(path), tempfile.TemporaryFile(dir=path.parent) as file:
            file.write(bytes(LEAST))
    except DiskFullError:
        raise
    except OSError as error:
        raise ValueError(
            f"{argument} is {str(path)!r}: nothing can be written there ({error.strerror})"
        ) from error


def check_picture(argument: str, path: Path | None) -> None:
    """Raise ValueError for a picture that could not be written, ModuleNotFoundError without matplotlib."""
    check_file(argument, path, (".png", ".svg"))
    if path is not None:
        import robopolicy.viz.pictures  # noqa: F401 (what is not installed is told before any work is done)
