"""Writes bundles: folders with a graph, golden vectors and a manifest, for robots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.bundles.c_source.interface import c_files
from robopolicy.bundles.c_source.tensors import UnsupportedError
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
    C_FILES,
    C_HEADER,
    C_SOURCE,
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
from robopolicy.runtime.compiled import outputs_digest
from robopolicy.runtime.compiler import CompilerError
from robopolicy.runtime.golden import kept, largest_differences, write_golden
from robopolicy.runtime.graph import NEXT
from robopolicy.runtime.manifest import SCHEMA, parse
from robopolicy.runtime.policy import BundlePolicy, C
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
    say: Callable[[str], None],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Write the bundle to the new folder `out`, atomically, and return its manifest.

    Args:
      out: a folder that does not exist.
      source: the policy.
      description: the task's description of inputs, outputs, cameras and robot.
      record: plays the policy; it is called while the graph is converted.
      say: called with a line if the C files are left out, since the graph has an operation without C source,
        or if the hash of their outputs is, for want of a compiler.
      about: `name`, `task`, `versions`, and summaries of `training` and `evaluation`, for the manifest.

    Raises ArithmeticError if the graph, or its C source, differs from the JAX policy by more than 1e-5 in an
    action, 1e-4 in the scores, or 1e-5 of the largest command (of 1 where commands are smaller) in a command;
    ValueError if an observation differs from the description; and as `onnx.export_policy`.
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
            policy_here = BundlePolicy(_unsealed(partial, manifest))
            manifest["parity"] = _parity(policy_here.replay(), manifest, recording, "ONNX")
            written.result()
        names = [*FILES, *_write_c(partial, manifest, recording, say)]
        (partial / README).write_text(readme(manifest), encoding="utf-8")
        manifest["files"] = {name: _sum(partial / name) for name in sorted(names)}
        (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        names = sorted((*names, MANIFEST))
        (partial / SUMS).write_text("".join(f"{_sum(partial / name)}  {name}\n" for name in names))
        open_bundle(partial)
    return manifest


def _unsealed(folder: Path, manifest: Mapping[str, Any], c_files: Mapping[str, str] | None = None) -> Bundle:
    """The bundle in `folder` before its checksums are written."""
    content = json.dumps({**manifest, "files": {}}).encode()
    return Bundle(folder, parse(content), (folder / GRAPH).read_bytes(), c_files or {})


def _write_c(
    folder: Path, manifest: dict[str, Any], recording: Recording, say: Callable[[str], None]
) -> tuple[str, ...]:
    """Write the C files, and put the hash of their outputs into the manifest. Returns their names."""
    bundle = _unsealed(folder, manifest)
    try:
        made = c_files(bundle.graph, bundle.manifest, manifest["name"])
    except UnsupportedError as error:
        say(f"{C_SOURCE} is left out: {error}")
        return ()
    texts = {C_SOURCE: made.source, C_HEADER: made.header}
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    manifest["c"] = {}
    try:
        policy = BundlePolicy(_unsealed(folder, manifest, texts), C)
    except CompilerError as error:
        say(f"{C_SOURCE} was not compiled, so the manifest has no hash of its outputs: {error}")
        return C_FILES
    rows: list[Mapping[str, NDArray[Any]]] = []
    parity = _parity(kept(policy.replay(), rows), manifest, recording, "C")
    manifest["c"] = {
        "outputs_sha256": outputs_digest(policy.manifest, rows),
        **{name: parity[name] for name in parity if name != "observations"},
    }
    return C_FILES


def _parity(
    replay: Callable[[Any], Mapping[str, NDArray[Any]]],
    manifest: Mapping[str, Any],
    recording: Recording,
    what: str,
) -> dict[str, Any]:
    """Compare a written policy with the recording. Raises ArithmeticError if they differ."""
    count = len(recording.outputs["action"])
    inputs, results = (
        [{name: array[i] for name, array in arrays.items()} for i in range(count)] for arrays in recording[:2]
    )
    largest = largest_differences(replay, zip(inputs, results, strict=True))
    for name, tolerance in manifest["tolerances"].items():
        if not largest[name] <= tolerance:
            raise ArithmeticError(
                f"{what} differs from JAX by {largest[name]:.1e} in {name} on {count} recorded observations: "
                f"it must be at most {tolerance:.0e}"
            )
    return {"observations": count, **{f"{name}_difference": largest[name] for name in OUTPUTS}}


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
    largest = max(1.0, *(float(abs(entry["high"])) for entry in entries))  # commands are as exact as actions
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
        "tolerances": {**TOLERANCES, "command": TOLERANCES["command"] * largest},
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
    for part in ("policy", "flops"):
        if not isinstance(manifest.get(part), dict):
            raise ValueError(f"{str(path)!r} lacks {part}: another version wrote it, so export the run again")
    try:
        check_summary(manifest["flops"])
    except ValueError as error:
        raise ValueError(f"flops in {str(path)!r}: {error}") from error
    return manifest
