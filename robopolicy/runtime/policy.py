"""A bundle's policy on the robot. numpy and onnxruntime, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from robopolicy.runtime.bundle import GRAPH, Bundle, open_bundle
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.runtime.manifest import BundleError, Manifest, Value, printable

Observation = Mapping[str, NDArray[Any]]


class Policy:
    """A policy from sensor readings to commands in physical units, on one thread.

    `manifest` tells names, shapes, dtypes, units and limits of its `inputs` and `outputs`.
    """

    def __init__(self, bundle: Bundle) -> None:
        """Raises BundleError where the graph is not the one that the manifest describes, or needs a newer
        onnxruntime.
        """
        self.manifest: Manifest = bundle.manifest
        self._inputs = {name: _Limits(value) for name, value in bundle.manifest.inputs.items()}
        self._outputs = {name: _Limits(value) for name, value in bundle.manifest.outputs.items()}
        where = str(bundle.folder / GRAPH)
        _check_version(bundle.manifest.data.get("requires"), where)
        try:
            self._graph = OnnxPolicy(bundle.graph)
        except ValueError as error:
            raise BundleError(f"{where}: {error}") from error
        _same(self._graph.shapes, self._graph.dtypes, bundle.manifest.inputs, f"{where}: inputs")
        _same(
            self._graph.output_shapes, self._graph.output_dtypes, bundle.manifest.outputs, f"{where}: outputs"
        )

    @classmethod
    def load(cls, folder: str | Path) -> Policy:
        """The policy of the bundle in `folder`; raises BundleError or FileNotFoundError, in one line."""
        return cls(open_bundle(folder))

    def act(self, observation: Observation) -> NDArray[np.float32]:
        """The command [A] for one observation, in the units that the manifest gives.

        Raises ValueError for an observation that is not as the manifest describes it, or with a number in it
        that is not finite or out of its limits; ArithmeticError where the policy itself gives such numbers.
        """
        return self.run(observation)["command"]

    def run(self, observation: Observation) -> dict[str, NDArray[np.float32]]:
        """All outputs by name; raises what `act` raises."""
        if not isinstance(observation, Mapping) or observation.keys() != self._inputs.keys():
            given = sorted(map(str, observation)) if isinstance(observation, Mapping) else observation
            raise ValueError(f"observation holds {given}: it must hold {sorted(self._inputs)}")
        for name, limits in self._inputs.items():
            limits.check(observation[name])
        try:
            answer = self._graph.run(observation)
        except Exception as error:  # onnxruntime's errors share no narrower base
            raise ArithmeticError(f"the policy failed: {printable(str(error))}") from error
        for name, limits in self._outputs.items():
            try:
                limits.check(answer[name])
            except ValueError as error:
                raise ArithmeticError(f"the policy failed: {error}") from error
        return answer


class _Limits:
    """What values of an input or an output are held to."""

    def __init__(self, value: Value) -> None:
        self._value = value
        # Compared in the dtype of what is checked, so that a limit itself lies within.
        low, high = value.low.astype(value.dtype), value.high.astype(value.dtype)
        self._low, self._high = low, high
        kind = np.dtype(value.dtype)
        self._free = kind.kind == "u" and bool((low <= 0).all() and (high >= np.iinfo(kind).max).all())

    def check(self, array: Any) -> None:
        """Raise ValueError naming the first number that is out of its limits."""
        value = self._value
        # A subclass may hide numbers, as a masked array does.
        is_array = type(array) is np.ndarray
        if not is_array or array.shape != value.shape or array.dtype != value.dtype:
            what = f"{array.dtype}{list(array.shape)}" if is_array else f"a {type(array).__name__}"
            raise ValueError(f"{value.name} is {what}: it must be {value.dtype}{list(value.shape)}")
        # Whatever is not a number is not within, either.
        if self._free or bool(((array >= self._low) & (array <= self._high)).all()):
            return
        at = np.argwhere(~((array >= self._low) & (array <= self._high)))[0]
        low, high = (np.broadcast_to(end, array.shape)[tuple(at)] for end in (value.low, value.high))
        where, unit = f"{at.tolist()}", value.units[0]
        if value.entries:
            where, unit = repr(value.entries[at[0]]), value.units[at[0]]
        unit = "" if unit == "1" else f" {unit}"
        raise ValueError(
            f"{value.name} {where} is {array[tuple(at)]:g}{unit}: it must be a number from {low:g} to "
            f"{high:g}"
        )


def _same(
    shapes: Mapping[str, tuple[Any, ...]], dtypes: Mapping[str, str], values: Mapping[str, Value], where: str
) -> None:
    found = {name: (tuple(shapes[name]), dtypes[name]) for name in shapes}
    wanted = {name: (value.shape, value.dtype) for name, value in values.items()}
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
            raise BundleError(
                f"{where} differ from the manifest in {name!r}: it is {found.get(name)} in the graph, "
                f"{wanted.get(name)} in the manifest"
            )


def _check_version(requires: Any, where: str) -> None:
    least = requires.get("onnxruntime") if isinstance(requires, dict) else None
    wanted = _numbers(least) if isinstance(least, str) else None
    if wanted is None:
        raise BundleError(f"{where}: the manifest must say which onnxruntime it requires, as 1.20")
    if (_numbers(onnxruntime.__version__) or (0,)) < wanted:
        raise BundleError(
            f"{where}: it requires onnxruntime {least}, and {onnxruntime.__version__} is installed"
        )


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")[:2]
    return tuple(map(int, parts)) if all(p.isdecimal() and len(p) < 6 for p in parts) else None
