"""Converted policies, kept in the user's cache folder, since a conversion takes seconds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.writing import whole

DIGEST = hashlib.sha256().digest_size
MOST = 200  # graphs, the least recently used of which goes
CONVERTERS = ("jax", "jax2onnx", "onnx")
ROOMS = ("attention", "policies", "export")  # whose code decides what a graph is


def place_of(description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Where the graph of what was given to the converter is kept: a name of its contents and of all code."""
    digest = hashlib.sha256(_code())
    digest.update(json.dumps(description, sort_keys=True, default=str).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if not os.path.isabs(folder):  # there is no home: nothing can be kept below this
        folder = os.devnull
    return Path(folder) / "robopolicy" / "onnx" / f"{digest.hexdigest()}.onnx"


@cache
def _code() -> bytes:
    digest = hashlib.sha256(json.dumps([version(name) for name in CONVERTERS]).encode())
    package = Path(__file__).parents[1]
    for file in sorted(file for room in ROOMS for file in (package / room).glob("*.py")):
        digest.update(file.read_bytes())
    return digest.digest()


def fetch(kept: Path, path: Path) -> bool:
    """Copy a graph that is kept to `path`; whether there was one that is not damaged."""
    try:
        content = kept.read_bytes()
    except OSError:
        return False
    with contextlib.suppress(OSError):  # of a cache that is read only
        os.utime(kept)
    digest, graph = content[:DIGEST], content[DIGEST:]
    if hashlib.sha256(graph).digest() != digest:
        return False
    path.write_bytes(graph)
    return True


def keep(path: Path, kept: Path) -> None:
    """Keep the graph at `path` behind its checksum. A cache that cannot be written only costs time."""
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        graph = path.read_bytes()
        with whole(kept) as partial:
            partial.write_bytes(hashlib.sha256(graph).digest() + graph)
        used = sorted(kept.parent.glob("*.onnx"), key=lambda file: file.stat().st_mtime)
        for old in used[:-MOST]:
            old.unlink()
