"""A bundle on disk: a folder whose files are exactly those that `SHA256SUMS` lists.

Sums prove that a bundle arrived whole, and not who made it: take them from where you trust.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from robopolicy.runtime.manifest import DIGEST, LARGEST, BundleError, Manifest, parse

GRAPH, GOLDEN, MANIFEST, README, SUMS = (
    "policy.onnx",
    "golden.npz",
    "manifest.json",
    "README.md",
    "SHA256SUMS",
)
STABLEHLO = "policy.stablehlo"
FILES = (GOLDEN, README, GRAPH, STABLEHLO)  # besides manifest and sums
LARGEST_SUMS = 64 * 2**10  # bytes
LARGEST_FILES = {GRAPH: 2**30, STABLEHLO: 2**30, GOLDEN: 2**32, README: 2**20, MANIFEST: LARGEST}
LINE = re.compile(r"([0-9a-f]{64})  (.+)")


class Bundle(NamedTuple):
    """A bundle whose files were all read and found as listed; what was read of its graph is kept."""

    folder: Path
    manifest: Manifest
    graph: bytes


def open_bundle(folder: str | Path) -> Bundle:
    """Read and check a bundle. Raises BundleError, or FileNotFoundError where there is no such folder."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"no bundle at {str(folder)!r}: it must be the folder that `export` wrote")
    sums = _sums(folder)
    _check_listing(folder, sums)
    content = {
        name: checked(folder, name, digest, keep=name in (GRAPH, MANIFEST)) for name, digest in sums.items()
    }
    manifest = parse(content[MANIFEST], str(folder / MANIFEST))
    listed = {name: digest for name, digest in sums.items() if name != MANIFEST}
    if manifest.files != listed:
        odd = sorted(manifest.files.items() ^ listed.items())[0][0]
        raise BundleError(f"{folder / MANIFEST}: files and {SUMS} differ in {odd!r}")
    return Bundle(folder, manifest, content[GRAPH])


def checked(folder: Path, name: str, digest: str, *, keep: bool) -> bytes:
    """Read a file and compare its SHA-256; its content, or nothing unless it is to be kept."""
    hashed, content = hashlib.sha256(), io.BytesIO()
    with _opened(folder / name) as file:
        size = os.fstat(file.fileno()).st_size
        if size > LARGEST_FILES[name]:
            raise BundleError(f"{str(folder / name)!r} has {size} bytes, and may have {LARGEST_FILES[name]}")
        while block := file.read(2**20):
            hashed.update(block)
            if keep:
                content.write(block)
    if hashed.hexdigest() != digest:
        raise BundleError(f"{str(folder / name)!r} is not what {SUMS} lists: it was changed or damaged")
    return content.getvalue()


def _opened(path: Path) -> io.BufferedReader:
    """An ordinary file; a link, or what blocks its reader, is refused."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise BundleError(f"{str(path)!r} is missing") from error
    except OSError as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise BundleError(f"{str(path)!r} is no ordinary file")
    return os.fdopen(descriptor, "rb")


def _sums(folder: Path) -> dict[str, str]:
    with _opened(folder / SUMS) as file:
        content = file.read(LARGEST_SUMS + 1)
    path = str(folder / SUMS)
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise BundleError(f"{path}: it is no text") from error
    if len(content) > LARGEST_SUMS or not text.endswith("\n"):
        raise BundleError(f"{path}: it is cut off, or too long")
    sums: dict[str, str] = {}
    for number, line in enumerate(text[:-1].split("\n"), 1):
        match = LINE.fullmatch(line)
        if match is None or not DIGEST.fullmatch(match[1]):
            raise BundleError(f"{path}: line {number} must be a SHA-256, two spaces and a name")
        name = match[2]
        if name not in (*FILES, MANIFEST):
            outside = " outside of the bundle" if "/" in name or name in ("..", ".") else ""
            raise BundleError(
                f"{path}: line {number} names {name!r}{outside}: no file of a bundle is called that"
            )
        if name in sums:
            raise BundleError(f"{path}: line {number} names {name!r} again")
        sums[name] = match[1]
    lacking = sorted({*FILES, MANIFEST} - sums.keys())
    if lacking:
        raise BundleError(f"{path}: {lacking[0]!r} is not listed")
    return sums


def _check_listing(folder: Path, sums: dict[str, str]) -> None:
    found = set(os.listdir(folder))
    for name in sorted(sums.keys() - found):
        raise BundleError(f"{str(folder / name)!r} is missing")
    for name in sorted(found - sums.keys() - {SUMS}):
        raise BundleError(f"{str(folder / name)!r} does not belong to the bundle: {SUMS} does not list it")
