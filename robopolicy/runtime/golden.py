"""Golden vectors: recorded observations with what the policy made of them, `golden.npz`.

`np.load` reads it too. Here it is read row by row, since a thousand images do not fit on every robot.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.bundle import GOLDEN, Bundle
from robopolicy.runtime.manifest import BundleError, Value

Row = dict[str, NDArray[Any]]
LEVEL = 1  # of compression: higher ones save little on images, and take longer
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError),
    *(NotImplementedError, KeyError, OverflowError, UnicodeError, MemoryError),
)


def write_golden(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays [N, ...] by name; the same arrays give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # its date is 1980's, always
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                file.write(_header(array.shape, array.dtype))
                for row in array:
                    file.write(np.ascontiguousarray(row).data)


def read_golden(bundle: Bundle) -> Iterator[tuple[Row, Row]]:
    """Observations and outputs, one after another. Raises BundleError where they are not as described."""
    path, manifest = bundle.folder / GOLDEN, bundle.manifest
    values = {**manifest.inputs, **manifest.outputs}
    try:
        with ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            names = archive.namelist()
            if sorted(names) != sorted(f"{name}.npy" for name in values):
                raise ValueError(f"it holds {', '.join(names)[:200]}")
            files = {name: stack.enter_context(archive.open(f"{name}.npy")) for name in values}
            for name, file in files.items():
                expected = _header((manifest.observations, *values[name].shape), np.dtype(values[name].dtype))
                if file.read(len(expected)) != expected:
                    raise ValueError(f"{name} does not begin as the manifest describes it")
            for _ in range(manifest.observations):
                row = {name: _read(file, values[name]) for name, file in files.items()}
                yield {n: row[n] for n in manifest.inputs}, {n: row[n] for n in manifest.outputs}
            for name, file in files.items():
                if file.read(1):
                    raise ValueError(f"{name} goes on after its last number")
    except DAMAGE as error:
        raise BundleError(f"{str(path)!r} is damaged: {' '.join(str(error).split())[:200]}") from error


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """How an array begins in NumPy's format, version 1.0. It is compared: to parse would be to trust."""
    told = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    text = repr(told).encode("latin1")
    padded = text + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def _read(file: IO[bytes], value: Value) -> NDArray[Any]:
    content = file.read(value.size)
    if len(content) != value.size:
        raise ValueError(f"{value.name} ends too early")
    kind = np.dtype(value.dtype).newbyteorder("<")
    return np.frombuffer(content, kind, math.prod(value.shape)).reshape(value.shape)
