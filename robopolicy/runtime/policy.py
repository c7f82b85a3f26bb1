"""The policy of a bundle, on the robot. It needs numpy and onnxruntime only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from robopolicy.naming import one_line, one_of, shown
from robopolicy.runtime.bundle import GOLDEN, GRAPH, Bundle, open_bundle
from robopolicy.runtime.compiled import CompiledPolicy
from robopolicy.runtime.graph import Observation, OnnxPolicy, Outputs
from robopolicy.runtime.manifest import BundleError, Limits, Manifest, Value

ONNX, C = "onnx", "c"
RUNTIMES = (ONNX, C)


class BundlePolicy:
    """A policy that maps sensor readings to a command in physical units, on one thread.

    The attribute `manifest` has the names, shapes, dtypes, units and limits of the `inputs` and `outputs`. A
    policy with a state keeps it from step to step; an episode begins with `reset`.
    """

    def __init__(self, bundle: Bundle, runtime: str = ONNX) -> None:
        """`runtime` is onnx or c, which compiles the policy.

        Raises BundleError if the graph differs from the manifest, or needs a newer onnxruntime, CompilerError
        without a C compiler or if it fails, and ValueError for another `runtime`.
        """
        one_of("runtime", runtime, RUNTIMES)
        self.manifest: Manifest = bundle.manifest
        self._inputs = {name: Limits(value) for name, value in bundle.manifest.inputs.items()}
        self._outputs = {name: Limits(value) for name, value in bundle.manifest.outputs.items()}
        where = str(bundle.folder / GRAPH)
        self._graph: OnnxPolicy | CompiledPolicy
        if runtime == C:
            self._graph = CompiledPolicy(bundle)
        else:
            _check_version(bundle.manifest.data.get("requires"), where)
            try:
                self._graph = OnnxPolicy(bundle.graph)
            except ValueError as error:
                raise BundleError(f"{where}: {error}") from error
        graph, manifest = self._graph, self.manifest
        _check_same(graph.shapes, graph.dtypes, manifest.inputs, f"{where}: inputs")
        _check_same(graph.output_shapes, graph.output_dtypes, manifest.outputs, f"{where}: outputs")
        if graph.starts != manifest.state:
            raise BundleError(
                f"{where}: its state begins with {graph.starts}, the manifest's with {manifest.state}"
            )
        self._stepping = {n: v for n, v in manifest.inputs.items() if np.isfinite(v.steps).any()}
        self.reset()

    @classmethod
    def load(cls, folder: str | Path, runtime: str = ONNX) -> BundlePolicy:
        """Load the bundle in `folder`. Raises as the class does, and FileNotFoundError, in one line."""
        return cls(open_bundle(folder), runtime)

    @property
    def c_sizes(self) -> dict[str, int]:
        """Bytes of the memory that a caller of the compiled policy provides; empty with onnxruntime."""
        return self._graph.sizes if isinstance(self._graph, CompiledPolicy) else {}

    def reset(self) -> None:
        """Begin an episode: forget the state, and the inputs of the last step."""
        self._graph.reset()
        self._last: dict[str, NDArray[Any]] = {}

    def act(self, observation: Observation) -> NDArray[np.float32]:
        """The command [A] for one observation, in the manifest's units.

        Raises ValueError if an input has another name, shape or dtype than in the manifest, or holds a number
        that is not finite, out of its limits, or farther from its last one than a step may go. Raises
        ArithmeticError if an output is out of its limits, or the state not finite. The state stays as it was.
        """
        return self.run(observation)["command"]

    def run(self, observation: Observation) -> Outputs:
        """All outputs by name. Raises as `act` does."""
        if not isinstance(observation, Mapping) or observation.keys() != self._inputs.keys():
            content = sorted(map(str, observation)) if isinstance(observation, Mapping) else observation
            raise ValueError(f"observation holds {shown(content)}: it must hold {sorted(self._inputs)}")
        for name, limits in self._inputs.items():
            limits.check(observation[name])
        self._check_steps(observation)
        try:
            outputs = self._graph.run(observation, self._check_outputs)
        except Exception as error:  # onnxruntime's errors share no narrower base
            raise ArithmeticError(f"the policy failed: {one_line(str(error))}") from error
        self._last = {name: observation[name].copy() for name in self._stepping}
        return outputs

    def replay(self) -> Callable[[Observation], dict[str, NDArray[np.float32]]]:
        """`run` for the golden vectors in order, which begins anew where their episodes do.

        It raises BundleError, which names the row, for a vector that `run` refuses.
        """
        rows = count()

        def run(observation: Observation) -> dict[str, NDArray[np.float32]]:
            if (row := next(rows)) == 0 or row in self.manifest.begins:
                self.reset()
            try:
                return self.run(observation)
            except ValueError as error:
                raise BundleError(f"{GOLDEN}, row {row}: {error}") from error

        return run

    def _check_outputs(self, outputs: Outputs) -> None:
        for name, limits in self._outputs.items():
            limits.check(outputs[name])

    def _check_steps(self, observation: Observation) -> None:
        """Raise ValueError, naming the first number that jumped."""
        for name, last in self._last.items():
            value, gone = self._stepping[name], np.abs(observation[name] - last)
            if not (gone <= value.steps).all():
                at = int(np.argwhere(~(gone <= value.steps))[0][0])
                raise ValueError(
                    f"{name} {value.entries[at]!r} jumped by {gone[at]:g} {value.units[at]}: a step may go "
                    f"{value.steps[at]:g} at most"
                )


def _check_same(
    shapes: Mapping[str, tuple[Any, ...]], dtypes: Mapping[str, str], values: Mapping[str, Value], where: str
) -> None:
    actual = {name: (tuple(shapes[name]), dtypes[name]) for name in shapes}
    expected = {name: (value.shape, value.dtype) for name, value in values.items()}
    for name in sorted(actual.keys() | expected.keys()):
        if actual.get(name) != expected.get(name):
            raise BundleError(
                f"{where} differ from the manifest in {name!r}: it is {actual.get(name)} in the graph, "
                f"{expected.get(name)} in the manifest"
            )


def _check_version(requires: Any, where: str) -> None:
    least = requires.get("onnxruntime") if isinstance(requires, dict) else None
    required = _numbers(least) if isinstance(least, str) else None
    if required is None:
        raise BundleError(f"{where}: the manifest must say which onnxruntime it requires, as 1.20")
    if (_numbers(onnxruntime.__version__) or (0,)) < required:
        raise BundleError(
            f"{where}: it requires onnxruntime {least}, and {onnxruntime.__version__} is installed"
        )


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")[:2]
    return tuple(map(int, parts)) if all(p.isdecimal() and len(p) < 6 for p in parts) else None
