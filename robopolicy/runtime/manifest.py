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

from robopolicy.naming import one_line, shown
from robopolicy.reading_json import parse_json
from robopolicy.settings import check_array, check_count, check_interval, check_number

SCHEMA = 2
LARGEST = 4 * 2**20  # bytes
DTYPES = ("float32", "uint8")
MOST_VALUES = 2**26  # of one input or output
SHORTEST_PERIOD, LONGEST_PERIOD = 1e-6, 60.0  # s
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
MOST_BYTES = 2**30  # of all inputs
SMALLEST_SCALE = 1e-30
RANGES = {"float32": (-1e30, 1e30), "uint8": (0.0, 255.0)}


class BundleError(ValueError):
    """A bundle is damaged, or a folder is not a bundle. The message is one line and names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Value(NamedTuple):
    """An input or an output.

    Attributes:
      name, shape, dtype: as in the graph.
      low, high: limits of every valid value, [N] for a vector with entries, [] otherwise.
      entries: the names of a vector's numbers; () for an image.
      units: the units of a vector's numbers, or the one unit of an image.
      steps: how far each number of a vector may go in a control period, [N], infinite without a limit; [0]
        for an image.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    entries: tuple[str, ...]
    units: tuple[str, ...]
    steps: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Size of one value, bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def unlimited(self) -> bool:
        """Whether its limits admit every number of its dtype."""
        return self.dtype == "uint8" and bool((self.low <= 0).all() and (self.high >= 255).all())


class Manifest(NamedTuple):
    """A checked manifest.

    Attributes:
      inputs, outputs: by name.
      control_period: time between two observations, s.
      deadline: time from an observation until its command is useless, s.
      observations: number of golden vectors.
      tolerances: largest allowed difference of each output from the recorded one, at most 1 or the largest
        limit of that output.
      files: SHA-256 of every file but itself and SHA256SUMS.
      digest: SHA-256 of inputs, outputs and times. Both ends of a connection must have the same digest.
      data: the whole JSON object.
      state: for each array that the graph hands to its next step, the number that fills it at first.
      begins: the golden vectors at which episodes begin.
      c_outputs: SHA-256 of what policy.c computes from all golden vectors; None where it was never compiled.
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
    state: dict[str, float]
    begins: frozenset[int]
    c_outputs: str | None

    @property
    def remembers(self) -> bool:
        """Whether a step depends on the steps before it, so that a policy must know where episodes begin."""
        return bool(self.state) or any(np.isfinite(value.steps).any() for value in self.inputs.values())


class Limits:
    """Checks the arrays of one input or output."""

    def __init__(self, value: Value) -> None:
        self._value = value
        # Rounded to the dtype of the arrays, so that the limit itself is accepted.
        self._low, self._high = value.low.astype(value.dtype), value.high.astype(value.dtype)
        self._unlimited = value.unlimited

    def check(self, array: Any) -> None:
        """Raise ValueError for another shape or dtype, or naming the first number out of its limits."""
        value = self._value
        # Not isinstance: a subclass may hide numbers, as a masked array does.
        if type(array) is not np.ndarray:
            kind, allowed = type(array).__name__, f"{value.dtype}{list(value.shape)}"
            raise ValueError(f"{value.name} is of type {kind}: it must be {allowed}")
        check_array(value.name, array, value.shape, value.dtype)
        if self._unlimited:
            return
        within = (array >= self._low) & (array <= self._high)  # False for NaN
        if within.all():
            return
        at = np.argwhere(~within)[0]
        low, high = (np.broadcast_to(end, array.shape)[tuple(at)] for end in (value.low, value.high))
        where, unit = f"{at.tolist()}", value.units[0]
        if value.entries:
            where, unit = repr(value.entries[at[0]]), value.units[at[0]]
        unit = "" if unit == "1" else f" {unit}"
        raise ValueError(
            f"{value.name} {where} is {array[tuple(at)]:g}{unit}: it must be a number from {low:g} to "
            f"{high:g}"
        )


def parse(content: bytes, where: str = "manifest.json") -> Manifest:
    """Parse and check a manifest. Raises BundleError, in one line that begins with `where`."""
    if len(content) > LARGEST:
        raise BundleError(f"{where}: it has {len(content)} bytes, and may have {LARGEST}")
    data = parse_json(content, where, allow_nan=False, error=BundleError)
    try:
        return _checked(data)
    except (ValueError, RecursionError) as error:  # nesting may be too deep for `repr` and `json.dumps`
        raise BundleError(f"{where}: {error}") from error


def _checked(data: Any) -> Manifest:
    if not isinstance(data, dict):
        raise ValueError("it must be an object")
    schema = data.get("schema")
    if schema != SCHEMA or not isinstance(schema, int):
        newer = isinstance(schema, int) and schema > SCHEMA
        advice = "a newer robopolicy reads it" if newer else "export the run again"
        raise ValueError(f"schema is {schema!r}: this robopolicy reads {SCHEMA}; {advice}")
    check_number("control_period", data.get("control_period"), SHORTEST_PERIOD, LONGEST_PERIOD)
    check_number("deadline", data.get("deadline"), SHORTEST_PERIOD, data["control_period"])
    golden = _object(data, "golden")
    check_count("golden observations", golden.get("observations"), 1, 10**6)
    inputs, outputs = (_values(_object(data, part), part) for part in ("inputs", "outputs"))
    if "command" not in outputs or not outputs["command"].entries:
        raise ValueError("outputs must have a 'command' with entries")
    shared = inputs.keys() & outputs.keys()
    if shared:
        raise ValueError(f"{sorted(shared)[0]!r} is an input and an output")
    if sum(value.size for value in inputs.values()) > MOST_BYTES:
        raise ValueError(f"inputs have more than {MOST_BYTES} bytes")
    tolerances, files = _object(data, "tolerances"), _object(data, "files")
    for name, value in outputs.items():
        largest = max(1.0, float(np.abs([value.low, value.high]).max()))
        check_number(f"tolerance of {name}", tolerances.get(name), 0.0, largest)
    for name, digest in files.items():
        if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise ValueError(f"files {name!r} is {digest!r}: it must be a SHA-256")
    agreed = {part: data[part] for part in ("inputs", "outputs", "control_period", "deadline")}
    return Manifest(
        inputs,
        outputs,
        float(data["control_period"]),
        float(data["deadline"]),
        golden["observations"],
        {name: float(tolerances[name]) for name in outputs},
        files,
        hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest(),
        data,
        _starts(data.get("feedback", [])),
        _begins(golden),
        _c_outputs(data.get("c", {})),
    )


def _starts(feedback: Any) -> dict[str, float]:
    """The first number of each array of the state."""
    if not (isinstance(feedback, list) and all(isinstance(one, dict) for one in feedback)):
        raise ValueError(f"feedback is {feedback!r}: it must be a list of objects")
    states = [one for one in feedback if "start" in one]
    for one in states:
        name = one.get("input")
        if not (isinstance(name, str) and NAME.fullmatch(name)):
            raise ValueError(f"feedback: input is {name!r}: a name has letters, digits and underscores")
        check_number(f"feedback {name!r}: start", one["start"], *RANGES["float32"])
    return {one["input"]: float(one["start"]) for one in states}


def _c_outputs(described: Any) -> str | None:
    """The hash of what policy.c computes."""
    if not isinstance(described, dict):
        raise ValueError(f"c is {described!r}: it must be an object")
    digest = described.get("outputs_sha256")
    if digest is not None and not (isinstance(digest, str) and DIGEST.fullmatch(digest)):
        raise ValueError(f"c: outputs_sha256 is {digest!r}: it must be a SHA-256")
    return digest


def _begins(golden: Mapping[str, Any]) -> frozenset[int]:
    """The golden vectors at which episodes begin."""
    begins = golden.get("begins", [])
    rows = range(golden["observations"])
    if not (isinstance(begins, list) and all(type(row) is int and row in rows for row in begins)):
        raise ValueError(f"golden begins is {begins!r}: it must be a list of rows from 0 to {rows[-1]}")
    return frozenset(begins)


def _object(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}: it must be an object")
    return value


def _values(described: Mapping[str, Any], part: str) -> dict[str, Value]:
    if not described:
        raise ValueError(f"{part} is empty")
    return {name: _value(name, _object(described, name), f"{part} {name!r}") for name in described}


def _value(name: str, fields: Mapping[str, Any], where: str) -> Value:
    if not NAME.fullmatch(name):
        raise ValueError(f"{where}: a name has letters, digits and underscores")
    shape, dtype, entries = (fields.get(key) for key in ("shape", "dtype", "entries"))
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= 4
        or not all(type(side) is int and side >= 1 for side in shape)
        or math.prod(shape) > MOST_VALUES
    ):
        raise ValueError(f"{where}: shape is {shape!r}: it must be 1-4 sizes, {MOST_VALUES} in all at most")
    if dtype not in DTYPES:
        raise ValueError(f"{where}: dtype is {dtype!r}: it must be {' or '.join(DTYPES)}")
    parts = [fields]
    if entries is not None:
        if dtype != "float32":
            raise ValueError(f"{where}: dtype is {dtype!r}: numbers with entries must be float32")
        is_list = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
        if not is_list or len(shape) != 1 or len(entries) != shape[0]:
            raise ValueError(f"{where}: entries must be one object for each of its {shape} numbers")
        parts = entries
    names = tuple(_text(entry, "name", where) for entry in entries or ())
    for one in parts:
        check_interval(f"{where}: low and high", (one.get("low"), one.get("high")), *RANGES[dtype])
    low, high = (np.array([float(one[end]) for one in parts]) for end in ("low", "high"))
    for one in entries or ():
        if "step" in one:
            check_number(f"{where}: step", one["step"], 0.0, RANGES["float32"][1])
    scale = fields.get("scale", [1.0] * len(names))
    if not isinstance(scale, list) or len(scale) != len(names):
        raise ValueError(f"{where}: scale is {shown(scale)}: it must be a list of {len(names)} numbers")
    for each in scale:
        check_number(f"{where}: scale", each, SMALLEST_SCALE, RANGES["float32"][1])
    steps = np.array([float(one.get("step", np.inf)) for one in entries or ()])
    if entries is None:
        low, high = low[0], high[0]
    units = tuple(_text(one, "unit", where) for one in parts)
    return Value(name, tuple(shape), dtype, low, high, names, units, steps)


def _text(fields: Mapping[str, Any], name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
        raise ValueError(f"{where}: {name} is {value!r}: it must be a text in one line")
    return value
