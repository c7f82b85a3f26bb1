"""What a bundle says of itself: `manifest.json`, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SCHEMA = 2
LARGEST = 4 * 2**20  # bytes
DTYPES = ("float32", "uint8")
MOST_VALUES = 2**26  # of one input or output
LONGEST_PERIOD = 60.0  # s
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
SHOWN, LONGEST_LINE = 60, 500  # characters of a value in a complaint, and of a complaint
MOST_BYTES = 2**30  # of all inputs
RANGES = {"float32": (-1e30, 1e30), "uint8": (0.0, 255.0)}


def printable(text: str) -> str:
    """Foreign words as one line without control characters, which may be commands to a terminal."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}..."


class BundleError(ValueError):
    """A bundle that is damaged, or none; one line says where."""

    def __init__(self, words: str) -> None:
        super().__init__(printable(words))


class Value(NamedTuple):
    """An input or an output.

    Attributes:
      name, shape, dtype: as in the graph.
      low, high: [] or [N] of a vector; what every sound value lies in.
      entries: name of every number of a vector, () of an image.
      units: unit of every number of a vector, or the one of an image.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    entries: tuple[str, ...]
    units: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of one value."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(NamedTuple):
    """A manifest that was checked.

    Attributes:
      inputs, outputs: by name.
      control_period: s between two observations.
      deadline: s from an observation to the last moment at which its command is of use.
      observations: how many golden vectors there are.
      tolerances: what an output may differ by from the recorded one, by name.
      files: SHA-256 of every other file of the bundle.
      digest: SHA-256 of what two ends of a connection must agree on: inputs, outputs and times.
      data: all of it, as JSON holds it.
    """

    inputs: dict[str, Value]
    outputs: dict[str, Value]
    control_period: float
    deadline: float
    observations: int
    tolerances: dict[str, float]
    files: dict[str, str]
    digest: bytes
    data: dict[str, Any]


def parse(content: bytes, where: str = "manifest.json") -> Manifest:
    """The manifest in `content`. Raises BundleError, in one line that begins with `where`."""
    try:
        return _parsed(content)
    except RecursionError as error:
        raise BundleError(f"{where}: it is nested too deeply") from error
    except BundleError as error:
        raise BundleError(f"{where}: {error}") from error


def _parsed(content: bytes) -> Manifest:
    if len(content) > LARGEST:
        raise BundleError(f"it has {len(content)} bytes, and may have {LARGEST}")
    try:
        data = json.loads(content.decode(), parse_constant=_refuse_constant)
    except ValueError as error:  # bytes that are no text, text that is no JSON
        raise BundleError(f"it is no JSON: {error}") from error
    if not isinstance(data, dict):
        raise BundleError("it must be an object")
    schema = data.get("schema")
    if schema != SCHEMA or not isinstance(schema, int):
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "a newer robopolicy reads it" if newer else "export the run again"
        raise BundleError(f"schema is {_shown(schema)}: this robopolicy reads {SCHEMA}; {advice}")
    period = _number(data, "control_period", 0.0, LONGEST_PERIOD)
    deadline = _number(data, "deadline", 0.0, period)
    golden = _object(data, "golden")
    observations = golden.get("observations")
    if type(observations) is not int or not 1 <= observations <= 10**6:
        raise BundleError(f"golden observations is {_shown(observations)}: it must be from 1 to 1000000")
    inputs, outputs = (_values(_object(data, part), part) for part in ("inputs", "outputs"))
    if "command" not in outputs or not outputs["command"].entries:
        raise BundleError("outputs must have a 'command' with entries")
    twice = inputs.keys() & outputs.keys()
    if twice:
        raise BundleError(f"{sorted(twice)[0]!r} is an input and an output")
    if sum(value.size for value in inputs.values()) > MOST_BYTES:
        raise BundleError(f"inputs have more than {MOST_BYTES} bytes")
    tolerances = _object(data, "tolerances")
    agreed = {part: data[part] for part in ("inputs", "outputs", "control_period", "deadline")}
    return Manifest(
        inputs,
        outputs,
        period,
        deadline,
        observations,
        {name: _number(tolerances, name, 0.0, 1.0) for name in outputs},
        _files(_object(data, "files")),
        hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest(),
        data,
    )


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    if not isinstance(found, dict):
        raise BundleError(f"{name} is {_shown(found)}: it must be an object")
    return found


def _number(data: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """A finite number in (low, high]; infinite ends are open."""
    found = data.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not low < found <= high:
        raise BundleError(
            f"{name} is {_shown(found)}: it must be a number above {low:g}, and at most {high:g}"
        )
    return float(found)


def _values(told: Mapping[str, Any], part: str) -> dict[str, Value]:
    if not told:
        raise BundleError(f"{part} is empty")
    return {name: _value(name, _object(told, name), part) for name in told}


def _value(name: str, told: Mapping[str, Any], part: str) -> Value:
    where = f"{part} {_shown(name)}"
    if not NAME.fullmatch(name):
        raise BundleError(f"{where}: a name has letters, digits and underscores")
    shape, dtype = told.get("shape"), told.get("dtype")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 4
        or not all(type(side) is int and side >= 1 for side in shape)
        or math.prod(shape) > MOST_VALUES
    ):
        raise BundleError(f"{where}: shape is {_shown(shape)}")
    if dtype not in DTYPES:
        raise BundleError(f"{where}: dtype is {_shown(dtype)}: it must be {' or '.join(DTYPES)}")
    entries = told.get("entries")
    if entries is None:
        described = [told]
    else:
        if not isinstance(entries, list) or len(shape) != 1 or len(entries) != shape[0]:
            raise BundleError(f"{where}: entries must be one for each of its {shape} numbers")
        described = entries
    names = tuple(_entry_name(entry, where) for entry in entries or ())
    limits = [_limits(one, where, *RANGES[dtype]) for one in described]
    low, high = (np.array([limit[end] for limit in limits]) for end in (0, 1))
    if entries is None:
        low, high = low[0], high[0]
    return Value(
        name, tuple(shape), dtype, low, high, names, tuple(_text(one, "unit", where) for one in described)
    )


def _entry_name(entry: Any, where: str) -> str:
    if not isinstance(entry, dict):
        raise BundleError(f"{where}: an entry is {_shown(entry)}: it must be an object")
    return _text(entry, "name", where)


def _limits(told: Mapping[str, Any], where: str, least: float, most: float) -> tuple[float, float]:
    ends = told.get("low"), told.get("high")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int | float) or not least <= end <= most:
            raise BundleError(
                f"{where}: low and high are {_shown(ends[0])} and {_shown(ends[1])}: they must be from "
                f"{least:g} to {most:g}"
            )
    low, high = (float(end) for end in ends if end is not None)
    if low > high:
        raise BundleError(f"{where}: low is {low:g}, above high, {high:g}")
    return low, high


def _text(told: Mapping[str, Any], name: str, where: str) -> str:
    found = told.get(name)
    if not isinstance(found, str) or not 1 <= len(found) <= 200 or not found.isprintable():
        raise BundleError(f"{where}: {name} is {_shown(found)}: it must be a text in one line")
    return found


def _files(told: Mapping[str, Any]) -> dict[str, str]:
    for name, digest in told.items():
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise BundleError(f"files {_shown(name)} is {_shown(digest)}: it must be a SHA-256")
    return dict(told)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
