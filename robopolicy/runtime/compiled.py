"""Policies as compiled C: that of a bundle, and the graph of rollout workers."""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.runtime.bundle import C_HEADER, C_SOURCE, Bundle
from robopolicy.runtime.compiler import library
from robopolicy.runtime.graph import Observation, Outputs, Stepping, missing_input
from robopolicy.runtime.manifest import BundleError, Manifest, Value
from robopolicy.settings import check_array

Arrays = Mapping[str, NDArray[Any]]
CODES = {
    1: "a pointer is null",
    2: "its state was never reset",
    3: "a reading is not finite, or out of its limits",
    4: "a reading jumped",
    5: "a result or an index is out of its limits, or the next state is not finite",
    6: "its state holds a number that is not finite",
}
# Sizes, as the compiler sees them, so that this side and the library agree on the layout of memory.
SIZES = f"""\
#include "{C_HEADER}"
const uint64_t robopolicy_sizes[] = {{
    sizeof(policy_readings), sizeof(policy_results), sizeof(policy_state), sizeof(policy_work),
}};
"""
FUNCTIONS = ("policy_reset", "policy_run")  # that this side calls
DIGEST = re.compile(r'#define POLICY_GRAPH_SHA256 "([0-9a-f]{64})"')


class CompiledPolicy:
    """Runs the C policy of a bundle, with its own checks; the counterpart of `OnnxPolicy`."""

    def __init__(self, bundle: Bundle) -> None:
        """Compile it. Raises CompilerError, and BundleError without C files or for those of another graph."""
        sources = bundle.c_files
        if not sources:
            raise BundleError(
                f"{bundle.folder} has no {C_SOURCE}: export the run again, with a graph that has C source"
            )
        where = str(bundle.folder / C_SOURCE)
        digest = DIGEST.search(sources[C_HEADER])
        if digest is None or digest[1] != hashlib.sha256(bundle.graph).hexdigest():
            raise BundleError(f"{where}: it was made from another graph")
        manifest = bundle.manifest
        self.shapes, self.dtypes = _described(manifest.inputs)
        self.output_shapes, self.output_dtypes = _described(manifest.outputs)
        self.starts = manifest.state
        self._library = library({**sources, "sizes.c": SIZES})
        for name in FUNCTIONS:
            if not hasattr(self._library, name):
                raise BundleError(f"{where}: it has no function {name}")
        sizes = (ctypes.c_uint64 * 4).in_dll(self._library, "robopolicy_sizes")
        self._readings, readings_size = _struct(manifest.inputs.values())
        self._results, results_size = _struct(manifest.outputs.values())
        if (readings_size, results_size) != (sizes[0], sizes[1]):
            raise BundleError(f"{where}: it differs from the manifest in the size of its readings or results")
        names = ("readings", "results", "state", "work")
        self.sizes = dict(zip(names, map(int, sizes), strict=True))
        self._state, self._work = (_aligned(self.sizes[name]) for name in ("state", "work"))
        addresses = (self._state, self._work, self._readings[""], self._results[""])
        self._arguments = [ctypes.c_void_p(_address(memory)) for memory in addresses]
        self.reset()

    def reset(self) -> None:
        """Begin an episode."""
        self._library.policy_reset(self._arguments[0])

    def run(self, observation: Observation, check: Callable[[Outputs], None]) -> Outputs:
        """All outputs by name, after `check`. Raises ArithmeticError with the meaning of a code but 0."""
        for name in self.shapes:
            self._readings[name][...] = observation[name]
        code = self._library.policy_run(*self._arguments)
        if code:
            raise ArithmeticError(CODES.get(code, f"code {code}"))
        outputs = {name: self._results[name].copy() for name in self.output_shapes}
        check(outputs)
        return outputs


def _described(values: Mapping[str, Value]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    return {n: one.shape for n, one in values.items()}, {n: one.dtype for n, one in values.items()}


def _struct(values: Iterable[Value]) -> tuple[dict[str, NDArray[Any]], int]:
    """Arrays by name at the places of members of a struct, all bytes under "", and its size."""
    places, size, most = list[tuple[Value, int]](), 0, 1
    for value in values:
        each = np.dtype(value.dtype).itemsize
        size = -(-size // each) * each
        places.append((value, size))
        size, most = size + value.size, max(most, each)
    size = -(-size // most) * most
    memory = _aligned(size)
    arrays = {
        value.name: memory[start : start + value.size].view(value.dtype).reshape(value.shape)
        for value, start in places
    }
    return {"": memory, **arrays}, size


def _aligned(size: int) -> NDArray[np.uint8]:
    """Zeros, at an address that every number may have."""
    return np.zeros(-(-size // 8) + 8, np.uint64).view(np.uint8)[:size]


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class CGraph(NamedTuple):
    """A graph of rollout workers as C.

    Attributes:
      text: its source; `run_graph(inputs, outputs, numbers, indices)` reads and fills arrays.
      inputs: shape and dtype of each, in order, those of the state at the end.
      outputs: shape of each, in order, the next state at the end.
      starts: the first number of each array of the state.
      numbers, indices: of the work memory.
    """

    text: str
    inputs: dict[str, tuple[tuple[int, ...], str]]
    outputs: dict[str, tuple[int, ...]]
    starts: dict[str, float]
    numbers: int
    indices: int

    @property
    def sources(self) -> dict[str, str]:
        """What the compiler reads, by file name."""
        return {C_SOURCE: self.text}


class CompiledGraph(Stepping):
    """Runs a `CGraph` as `OnnxPolicy` runs a graph, with the same `parameters` and `normaliser`."""

    def __init__(self, graph: CGraph, parameters: NDArray[np.float32] | None = None) -> None:
        """Raises CompilerError."""
        self.parameters = parameters
        self.normaliser: NDArray[np.float32] | None = None
        self.starts = graph.starts
        self._inputs = {n: one for n, one in graph.inputs.items() if n not in graph.starts}
        self.state_shapes = {name: graph.inputs[name][0] for name in graph.starts}
        self._outputs = {name: np.zeros(shape, np.float32) for name, shape in graph.outputs.items()}
        self._memory = np.zeros(graph.numbers, np.float32), np.zeros(graph.indices, np.int32)
        pointers = [_address(array) for array in self._outputs.values()]
        self._to = (ctypes.c_void_p * len(pointers))(*pointers)
        self._from = (ctypes.c_void_p * len(graph.inputs))()
        self._work = [ctypes.c_void_p(_address(array)) for array in self._memory]
        self._run = library(graph.sources).run_graph
        self.reset()

    def run(self, observation: Observation) -> dict[str, NDArray[np.float32]]:
        """As `Stepping.run`."""
        feed: dict[str, Any] = {"parameters": self.parameters, "normaliser": self.normaliser, **observation}
        missing_input(self._inputs, feed, observation)
        held = []  # until the call ends
        for place, (name, (shape, dtype)) in enumerate(self._inputs.items()):
            check_array(name, feed[name], shape, dtype)
            held.append(np.ascontiguousarray(feed[name]))
            self._from[place] = _address(held[-1])
        for place, array in enumerate(self._state.values(), len(self._inputs)):
            self._from[place] = _address(array)
        if self._run(self._from, self._to, *self._work):
            raise ArithmeticError("a number that chooses a place is out of range")
        return self._without_state({name: array.copy() for name, array in self._outputs.items()})


def outputs_digest(manifest: Manifest, rows: Iterable[Arrays]) -> str:
    """SHA-256 of all outputs, row after row in the manifest's order, as little-endian numbers."""
    digest = hashlib.sha256()
    for row in rows:
        for name, value in manifest.outputs.items():
            digest.update(np.asarray(row[name], np.dtype(value.dtype).newbyteorder("<")).tobytes())
    return digest.hexdigest()
