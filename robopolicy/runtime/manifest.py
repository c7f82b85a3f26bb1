"""Reads `manifest.json`, the description of a bundle. No entry is used before it is checked."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.reading_json import parse_json

SCHEMA = 2
LARGEST = 4 * 2**20  # bytes
DTYPES = ("float32", "uint8")
MOST_VALUES = 2**26  # of one input or output
LONGEST_PERIOD = 60.0  # s
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
LONGEST_VALUE, LONGEST_LINE = 60, 500  # characters of a value in a message, and of a message
MOST_BYTES = 2**30  # of all inputs
RANGES = {"float32": (-1e30, 1e30), "uint8": (0.0, 255.0)}


def printable(text: str) -> str:
    """`text` in one line, without control characters: a terminal might obey them."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    # Keeps both ends of a long message: it begins with the error and ends with what is allowed.
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 203]}...{line[-200:]}"


class BundleError(ValueError):
    """A bundle is damaged, or a folder is not a bundle. The message is one line and names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Value(NamedTuple):
    """An input or an output.

    Attributes:
      name, shape, dtype: as in the graph.
      low, high: limits of every valid value, [N] for a vector with entries, [] otherwise.
      entries: the names of a vector's numbers; () for an image.
      units: the units of a vector's numbers, or the one unit of an image.
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
        """Size of one value, bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(NamedTuple):
    """A checked manifest.

    Attributes:
      inputs, outputs: by name.
      control_period: time between two observations, s.
      deadline: time from an observation until its command is useless, s.
      observations: number of golden vectors.
      tolerances: largest allowed difference of each output from the recorded one.
      files: SHA-256 of every other file of the bundle.
      digest: SHA-256 of inputs, outputs and times. Both ends of a connection must have the same digest.
      data: the whole JSON object.
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
    """Parse and check a manifest. Raises BundleError, in one line that begins with `where`."""
    if len(content) > LARGEST:
        raise BundleError(f"{where}: it has {len(content)} bytes, and may have {LARGEST}")
    try:
        return _checked(parse_json(content, where, allow_nan=False))
    except BundleError as error:
        raise BundleError(f"{where}: {error}") from error
    except ValueError as error:
        raise BundleError(str(error)) from error
    except RecursionError as error:  # parsed, but too deep for `repr` and `json.dumps`
        raise BundleError(f"{where}: it is nested too deeply") from error


def _checked(data: Any) -> Manifest:
    if not isinstance(data, dict):
        raise BundleError("it must be an object")
    schema = data.get("schema")
    if schema != SCHEMA or not isinstance(schema, int):
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "a newer robopolicy reads it" if newer else "export the run again"
        raise BundleError(f"schema is {_short(schema)}: this robopolicy reads {SCHEMA}; {advice}")
    period = _number(data, "control_period", 0.0, LONGEST_PERIOD)
    deadline = _number(data, "deadline", 0.0, period)
    golden = _object(data, "golden")
    observations = golden.get("observations")
    if type(observations) is not int or not 1 <= observations <= 10**6:
        raise BundleError(f"golden observations is {_short(observations)}: it must be from 1 to 1000000")
    inputs, outputs = (_values(_object(data, part), part) for part in ("inputs", "outputs"))
    if "command" not in outputs or not outputs["command"].entries:
        raise BundleError("outputs must have a 'command' with entries")
    shared = inputs.keys() & outputs.keys()
    if shared:
        raise BundleError(f"{sorted(shared)[0]!r} is an input and an output")
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


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, dict):
        raise BundleError(f"{name} is {_short(value)}: it must be an object")
    return value


def _number(data: Mapping[str, Any], name: str, low: float, high: float) -> float:
    """The number `name` of `data`, in (low, high]."""
    value = data.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
        raise BundleError(
            f"{name} is {_short(value)}: it must be a number above {low:g}, and at most {high:g}"
        )
    return float(value)


def _values(described: Mapping[str, Any], part: str) -> dict[str, Value]:
    if not described:
        raise BundleError(f"{part} is empty")
    return {name: _value(name, _object(described, name), part) for name in described}


def _value(name: str, fields: Mapping[str, Any], part: str) -> Value:
    where = f"{part} {_short(name)}"
    if not NAME.fullmatch(name):
        raise BundleError(f"{where}: a name has letters, digits and underscores")
    shape, dtype = fields.get("shape"), fields.get("dtype")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 4
        or not all(type(side) is int and side >= 1 for side in shape)
        or math.prod(shape) > MOST_VALUES
    ):
        raise BundleError(f"{where}: shape is {_short(shape)}")
    if dtype not in DTYPES:
        raise BundleError(f"{where}: dtype is {_short(dtype)}: it must be {' or '.join(DTYPES)}")
    entries = fields.get("entries")
    if entries is None:
        described = [fields]
    else:
        if not isinstance(entries, list) or len(shape) != 1 or len(entries) != shape[0]:
            raise BundleError(f"{where}: entries must be one for each of its {shape} numbers")
        described = entries
    names = tuple(_entry_name(entry, where) for entry in entries or ())
    limits = [_limits(one, where, *RANGES[dtype]) for one in described]
    low, high = (np.array([limit[end] for limit in limits]) for end in (0, 1))
    if entries is None:
        low, high = low[0], high[0]
    units = tuple(_text(one, "unit", where) for one in described)
    return Value(name, tuple(shape), dtype, low, high, names, units)


def _entry_name(entry: Any, where: str) -> str:
    if not isinstance(entry, dict):
        raise BundleError(f"{where}: an entry is {_short(entry)}: it must be an object")
    return _text(entry, "name", where)


def _limits(fields: Mapping[str, Any], where: str, least: float, most: float) -> tuple[float, float]:
    ends = fields.get("low"), fields.get("high")
    for end in ends:
        if isinstance(end, bool) or not isinstance(end, int | float) or not least <= end <= most:
            raise BundleError(
                f"{where}: low and high are {_short(ends[0])} and {_short(ends[1])}: they must be from "
                f"{least:g} to {most:g}"
            )
    low, high = (float(end) for end in ends if end is not None)
    if low > high:
        raise BundleError(f"{where}: low is {low:g}, above high, {high:g}")
    return low, high


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise BundleError(f"{where}: {name} is {_short(value)}: it must be a text in one line")
    return value


def _files(digests: Mapping[str, Any]) -> dict[str, str]:
    for name, digest in digests.items():
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise BundleError(f"files {_short(name)} is {_short(digest)}: it must be a SHA-256")
    return dict(digests)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
