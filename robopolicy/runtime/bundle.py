"""A bundle on disk: a folder that holds exactly the files that `SHA256SUMS` lists.

The checksums show that a bundle arrived undamaged. They do not show who made it: copy it from a trusted
source.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from robopolicy.naming import shown
from robopolicy.runtime.manifest import LARGEST, BundleError, Manifest, parse

GRAPH, STABLEHLO, GOLDEN = "policy.onnx", "policy.stablehlo", "golden.npz"
MANIFEST, README, SUMS = "manifest.json", "README.md", "SHA256SUMS"
FILES = (GOLDEN, README, GRAPH, STABLEHLO)  # besides the manifest and the checksums
C_HEADER, C_SOURCE = "policy.h", "policy.c"
C_FILES = (C_SOURCE, C_HEADER)  # both or none: older bundles have none
LARGEST_SUMS = 64 * 2**10  # bytes
LARGEST_FILES = {GRAPH: 2**30, STABLEHLO: 2**30, GOLDEN: 2**32, README: 2**20, MANIFEST: LARGEST}  # bytes
LARGEST_FILES |= dict.fromkeys(C_FILES, 2**30)
LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class Bundle(NamedTuple):
    """A bundle whose checksums all match.

    Attributes:
      graph: the bytes of the ONNX file that was checked.
      c_files: the text of its C files by name, if it has them.
    """

    folder: Path
    manifest: Manifest
    graph: bytes
    c_files: Mapping[str, str] = {}


def open_bundle(folder: str | Path) -> Bundle:
    """Read a bundle and check every file.

    Raises BundleError, FileNotFoundError if `folder` is missing, and ValueError if it is no path.
    """
    if not isinstance(folder, str | os.PathLike):
        raise ValueError(f"bundle is {shown(folder)}: it must be a path")
    folder = Path(folder)
    if not os.path.isdir(folder):  # before Python 3.14, Path.is_dir raises for a name that is too long
        raise FileNotFoundError(f"no bundle at {str(folder)!r}: it must be the folder that `export` wrote")
    sums = _sums(folder)
    content = {name: _read_checked(folder, name, digest) for name, digest in sums.items()}
    manifest = parse(content[MANIFEST], str(folder / MANIFEST))
    listed = {name: digest for name, digest in sums.items() if name != MANIFEST}
    if manifest.files != listed:
        name = sorted(manifest.files.items() ^ listed.items())[0][0]
        raise BundleError(f"{folder / MANIFEST}: files and {SUMS} differ in {name!r}")
    c_files = {name: _text(folder / name, content[name]) for name in C_FILES if name in sums}
    return Bundle(folder, manifest, content[GRAPH], c_files)


def _text(path: Path, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BundleError(f"{str(path)!r} is not UTF-8 text") from error


def _read_checked(folder: Path, name: str, digest: str) -> bytes:
    """Read a file and check its SHA-256. Returns the content of graph, manifest and C files."""
    sha256, content = hashlib.sha256(), io.BytesIO()
    with _open_regular(folder / name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILES[name]:
            raise BundleError(f"{str(folder / name)!r} has {size} bytes, and may have {LARGEST_FILES[name]}")
        while block := file.read(2**20):
            sha256.update(block)
            if name in (GRAPH, MANIFEST, *C_FILES):
                content.write(block)
    if sha256.hexdigest() != digest:
        raise BundleError(f"{str(folder / name)!r} does not match {SUMS}: it was changed or damaged")
    return content.getvalue()


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file. A link or a pipe raises BundleError, and a pipe does not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise BundleError(f"{str(path)!r} is missing") from error
    except OSError as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{str(path)!r} is not a regular file")
    return os.fdopen(descriptor, "rb")


def _sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file, by name. The folder holds exactly these files and `SHA256SUMS`."""
    path = str(folder / SUMS)
    if not os.path.lexists(path):
        raise BundleError(f"{path!r} is missing: {str(folder)!r} is no bundle of robopolicy export")
    with _open_regular(folder / SUMS) as file:
        content = file.read(LARGEST_SUMS + 1)
    if not content.isascii():
        raise BundleError(f"{path}: it is not ASCII text")
    text = content.decode()
    if len(content) > LARGEST_SUMS or not text.endswith("\n"):
        raise BundleError(f"{path}: it is cut off, or too long")
    sums: dict[str, str] = {}
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = LINE.fullmatch(line)
        if match is None:
            raise BundleError(f"{path}: line {number} must be a SHA-256, two spaces and a name")
        name = match[2]
        if name not in (*FILES, *C_FILES, MANIFEST):
            outside = " outside of the bundle" if "/" in name or name in ("..", ".") else ""
            raise BundleError(f"{path}: line {number} names {name!r}{outside}: a bundle has no such file")
        if name in sums:
            raise BundleError(f"{path}: line {number} names {name!r} again")
        sums[name] = match[1]
    names = set(os.listdir(folder))
    expected = {*FILES, MANIFEST} | (set(C_FILES) if sums.keys() & set(C_FILES) else set())
    for name in sorted(expected - sums.keys()):
        raise BundleError(f"{path}: {name!r} is not listed")
    for name in sorted(names - sums.keys() - {SUMS}):
        raise BundleError(f"{str(folder / name)!r} does not belong to the bundle: {SUMS} does not list it")
    return sums
