"""Writes bundles: folders with a graph, golden vectors and a manifest, for robots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.onnx import conversion
from robopolicy.bundles.outputs import OUTPUTS, Units, outputs, units_of
from robopolicy.bundles.readme import readme
from robopolicy.bundles.stablehlo import stablehlo
from robopolicy.costs.flops import check_summary, count_step
from robopolicy.policies.base import KEY, named_state, parameter_count, state_shape, unflatten
from robopolicy.policies.catalogue import describe
from robopolicy.policies.policy import Policy
from robopolicy.reading_json import read_object
from robopolicy.runtime.bundle import (
    FILES,
    GOLDEN,
    GRAPH,
    MANIFEST,
    README,
    STABLEHLO,
    SUMS,
    Bundle,
    open_bundle,
)
from robopolicy.runtime.golden import largest_differences, write_golden
from robopolicy.runtime.graph import NEXT
from robopolicy.runtime.manifest import SCHEMA, parse
from robopolicy.runtime.policy import BundlePolicy
from robopolicy.writing import whole

# Scores grow with training and contain the rounding of the whole ranking; a wrong graph differs by far more.
TOLERANCES = {"command": 1e-5, "action": 1e-5, "scores": 1e-4}
LEAST_ONNXRUNTIME = "1.20"
ANY = 1e30  # scores have no limits


class Recording(NamedTuple):
    """Observations [N, ...] and the JAX policy's outputs [N, ...] by name, and the recording's settings."""

    observations: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[np.float32]]
    about: dict[str, Any]


def write_bundle(
    out: Path,
    source: Policy,
    description: Mapping[str, Any],
    record: Callable[[Units], Recording],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the bundle to the new folder `out`, atomically, and return its manifest.

    Args:
      out: a folder that does not exist.
      source: the policy.
      description: the task's description of inputs, outputs, cameras and robot.
      record: plays the policy; it is called while the graph is converted.
      about: `name`, `task`, `versions`, and summaries of `training` and `evaluation`, for the manifest.

    Raises ArithmeticError if the graph differs from the JAX policy by more than 1e-5 in a command or action,
    or 1e-4 in the scores; ValueError if an observation differs from the description.
    """
    policy, units = source.functions, units_of(description)
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole(out) as partial:
        partial.mkdir()
        with conversion(source.config, source.features, partial / GRAPH, source.parameters, units):
            tree = unflatten(policy)(source.parameters)
            (partial / STABLEHLO).write_bytes(stablehlo(policy, tree, source.features, units))
            recording = record(units)
        manifest = _manifest(source, description, recording, about)
        arrays = {**recording.observations, **recording.outputs}
        with ThreadPoolExecutor(1) as side:
            written = side.submit(write_golden, partial / GOLDEN, arrays)
            manifest["parity"] = _parity(partial, manifest, recording)
            written.result()
        (partial / README).write_text(readme(manifest))
        manifest["files"] = {name: _sum(partial / name) for name in FILES}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        names = sorted((*FILES, MANIFEST))
        (partial / SUMS).write_text("".join(f"{_sum(partial / name)}  {name}\n" for name in names))
        open_bundle(partial)
    return manifest


def _parity(folder: Path, manifest: Mapping[str, Any], recording: Recording) -> dict[str, Any]:
    """Compare the written graph with the recording. Raises ArithmeticError if they differ."""
    content = json.dumps({**manifest, "files": {}}).encode()
    graph = BundlePolicy(Bundle(folder, parse(content), (folder / GRAPH).read_bytes()))
    count = len(recording.outputs["action"])
    inputs, results = (
        [{name: array[i] for name, array in arrays.items()} for i in range(count)] for arrays in recording[:2]
    )
    largest = largest_differences(graph.replay(), zip(inputs, results, strict=True))
    for name, tolerance in manifest["tolerances"].items():
        if not largest[name] <= tolerance:
            raise ArithmeticError(
                f"ONNX differs from JAX by {largest[name]:.1e} in {name} on {count} recorded observations: "
                f"it must be at most {tolerance:.0e}"
            )
    return {"observations": count, **{f"{name}_difference": largest[name] for name in OUTPUTS}}


def _largest_scale(entries: Sequence[Mapping[str, Any]]) -> float:
    """The largest physical value of an action of one, at least 1: commands are as exact as actions."""
    return max(1.0, *(float(abs(entry["high"])) for entry in entries))


def _manifest(
    source: Policy, description: Mapping[str, Any], recording: Recording, about: Mapping[str, Any]
) -> dict[str, Any]:
    policy = source.functions
    shapes, _ = jax.eval_shape(
        outputs(policy, units_of(description)),
        *(jax.eval_shape(init, KEY) for init in (policy.init, policy.init_features)),
        policy.observation,
        state_shape(policy, source.features),
    )
    entries = description["outputs"]["command"]["entries"]
    described = {
        "command": description["outputs"]["command"],
        "action": {
            "entries": [{"name": e["name"], "unit": "1", "low": -1.0, "high": 1.0} for e in entries],
            "about": "the command before it is scaled",
        },
        "scores": {"unit": "1", "low": -ANY, "high": ANY, "about": "what the action was chosen by"},
    }
    return {
        "schema": SCHEMA,
        "name": about["name"],
        "task": about["task"],
        "control_period": description["control_period"],
        "deadline": description["deadline"],
        "inputs": {
            name: {**_typed(s), **description["inputs"][name]} for name, s in policy.observation.items()
        },
        "outputs": {name: {**_typed(shapes[name]), **described[name]} for name in OUTPUTS},
        "feedback": [*description["feedback"], *_state(source)],
        "cameras": description["cameras"],
        "robot": description["robot"],
        "attention": source.config.label,
        "parameters": parameter_count(policy),
        "flops": count_step(policy).summary(),
        "tolerances": {**TOLERANCES, "command": TOLERANCES["command"] * _largest_scale(entries)},
        "golden": recording.about,
        "requires": {"onnxruntime": LEAST_ONNXRUNTIME},
        "versions": about["versions"],
        "training": about["training"],
        "evaluation": about["evaluation"],
        "policy": describe(source.config),
        "run": dict(source.run),
    }


def _state(source: Policy) -> list[dict[str, Any]]:
    """The arrays of a policy's state, which the graph hands to its next step."""
    return [
        {
            **_typed(jax.eval_shape(lambda leaf=leaf: leaf)),
            "input": name,
            "first": 0,
            "output": NEXT + name,
            "start": float(np.ravel(leaf)[0]),
            "about": f"of the step before; {np.ravel(leaf)[0]:g} everywhere as an episode begins",
        }
        for name, leaf in named_state(source.init_state()).items()
    ]


def _typed(shaped: jax.ShapeDtypeStruct) -> dict[str, Any]:
    return {"shape": list(shaped.shape), "dtype": str(shaped.dtype)}


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, with the `FlopCount.summary` of a step under `flops`.

    Raises ValueError, in one line, if it is damaged or lacks an entry, FileNotFoundError if it is missing.
    """
    path = folder / MANIFEST
    manifest = read_object(path)
    for part in ("policy", "flops", "run"):
        if not isinstance(manifest.get(part), dict):
            raise ValueError(f"{str(path)!r} lacks {part}: another version wrote it, so export the run again")
    try:
        check_summary(manifest["flops"])
    except ValueError as error:
        raise ValueError(f"flops in {str(path)!r}: {error}") from error
    return manifest
