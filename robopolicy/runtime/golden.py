"""Golden vectors, `golden.npz`: recorded observations and the policy's outputs for them.

`np.load` reads the file too. This module reads it row by row: a thousand images may not fit in a robot's
memory.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.bundle import GOLDEN, Bundle
from robopolicy.runtime.manifest import BundleError, Value

Arrays = Mapping[str, NDArray[Any]]
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError, RuntimeError),
    *(NotImplementedError, KeyError, OverflowError, UnicodeError, MemoryError),
)


def write_golden(path: Path, arrays: Arrays) -> None:
    """Write arrays [N, ...] by name. The same arrays give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # with a constant date, in 1980
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                file.write(_header(array.shape, array.dtype))
                for row in array:
                    file.write(np.ascontiguousarray(row).data)


def read_golden(bundle: Bundle) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield each observation and its outputs. Raises BundleError if the file does not match the manifest."""
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
                    raise ValueError(f"the header of {name} does not match the manifest")
            for _ in range(manifest.observations):
                row = {name: _read(file, values[name]) for name, file in files.items()}
                yield {n: row[n] for n in manifest.inputs}, {n: row[n] for n in manifest.outputs}
            for name, file in files.items():
                if file.read(1):
                    raise ValueError(f"{name} has data after its last row")
    except DAMAGE as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}") from error


def largest_differences(
    run: Callable[[Arrays], Arrays], recorded: Iterable[tuple[Arrays, Arrays]]
) -> dict[str, float]:
    """The largest absolute difference of every output between `run` and recorded outputs; infinite for NaN.

    An action may be a choice, which hides small differences. The `scores` behind it show them.
    """
    largest: dict[str, float] = {}
    for observation, outputs in recorded:
        computed = run(observation)
        for name, output in outputs.items():
            difference = float(np.abs(output.astype(np.float64) - computed[name]).max())
            # `max` may ignore NaN.
            largest[name] = max(largest.get(name, 0.0), math.inf if math.isnan(difference) else difference)
    return largest


def kept(run: Callable[[Arrays], Arrays], rows: list[Arrays]) -> Callable[[Arrays], Arrays]:
    """`run`, which appends its outputs to `rows`."""

    def keeping(observation: Arrays) -> Arrays:
        rows.append(run(observation))
        return rows[-1]

    return keeping


def _header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The header of an array in NumPy's format, version 1.0. Headers are compared with it, never parsed."""
    fields = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
    text = repr(fields).encode("latin1")
    padded = text + b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded


def _read(file: IO[bytes], value: Value) -> NDArray[Any]:
    content = file.read(value.size)
    if len(content) != value.size:
        raise ValueError(f"{value.name} is cut off")
    kind = np.dtype(value.dtype).newbyteorder("<")
    return np.frombuffer(content, kind, math.prod(value.shape)).reshape(value.shape)
