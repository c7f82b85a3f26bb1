"""A cache of converted policies in the user's cache folder, since a conversion takes seconds."""

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

from robopolicy.writing import cache_folder, keep

DIGEST = hashlib.sha256().digest_size
MOST = 200  # graphs; the least recently used are removed
CONVERTERS = ("flax", "jax", "jax2onnx", "onnx")
CODE = ("attention/*.py", "policies/*.py", "bundles/*.py", "runtime/graph.py")  # determines a graph


def cache_path(description: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Path:
    """The cached file of the converter's input: its name is a digest of the input and of the code."""
    digest = hashlib.sha256(_code())
    digest.update(json.dumps(description, sort_keys=True).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return cache_folder("onnx") / f"{digest.hexdigest()}.onnx"


@cache
def _code() -> bytes:
    digest = hashlib.sha256(json.dumps([version(name) for name in CONVERTERS]).encode())
    package = Path(__file__).parents[1]
    for file in sorted(file for pattern in CODE for file in package.glob(pattern)):
        digest.update(file.read_bytes())
    return digest.digest()


def fetch(cached: Path, path: Path) -> bool:
    """Copy a cached graph to `path`. Returns whether there is one that is not damaged."""
    try:
        content = cached.read_bytes()
    except OSError:
        return False
    with contextlib.suppress(OSError):  # of a cache that is read only
        os.utime(cached)
    digest, graph = content[:DIGEST], content[DIGEST:]
    if hashlib.sha256(graph).digest() != digest:
        return False
    path.write_bytes(graph)
    return True


def store(path: Path, cached: Path) -> None:
    """Store the graph at `path` behind its checksum."""
    graph = path.read_bytes()
    keep(cached, hashlib.sha256(graph).digest() + graph, MOST)
