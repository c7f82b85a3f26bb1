"""The folder that leaves the workstation: the graph, what it was checked on, and what it is."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.export.onnx import export_policy
from robopolicy.export.verify import compare
from robopolicy.flops import check_summary, count_step
from robopolicy.policies.base import Policy, unflatten
from robopolicy.policies.catalogue import PolicyConfig, describe
from robopolicy.runtime.graph import OnnxPolicy

MANIFEST = "manifest.json"
RECORDED_FROM = 20_000  # first seed of the episodes that observations are recorded in
ACTION_TOLERANCE = 1e-5
# Scores grow with training and carry the rounding of the whole ranking; a wrong graph is off by far more.
SCORES_TOLERANCE = 1e-4


def record(env: Any, act: OnnxPolicy, count: int) -> list[dict[str, NDArray[np.float32]]]:
    """`count` observations of the policy at work, in as many episodes as it takes."""
    seen: list[dict[str, NDArray[np.float32]]] = []
    seed = RECORDED_FROM
    while len(seen) < count:
        observation, _ = env.reset(seed=seed)
        done = False
        while not done and len(seen) < count:
            seen.append(observation)
            observation, _, ended, cut, _ = env.step(act(observation))
            done = ended or cut
        seed += 1
    return seen


class Source(Protocol):
    """What a bundle is made of: a policy's config, its functions, flat parameters, features, and its run."""

    @property
    def config(self) -> PolicyConfig: ...
    @property
    def policy(self) -> Policy: ...
    @property
    def parameters(self) -> NDArray[np.float32]: ...
    @property
    def features(self) -> Any: ...
    @property
    def run(self) -> dict[str, Any]: ...


def write_bundle(out: Path, source: Source, env: Any, observations: int) -> dict[str, Any]:
    """Write the bundle to the new folder `out`, whole or not at all, and return its manifest.

    Raises ArithmeticError where the graph differs from the JAX policy by more than 1e-5 in an action, or
    1e-4 in what it was chosen by.
    """
    policy, parameters = source.policy, source.parameters
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        export_policy(source.config, source.features, partial / "policy.onnx", parameters)
        graph = OnnxPolicy(partial / "policy.onnx")
        seen = record(env, graph, observations)
        parity = compare(policy, unflatten(policy)(parameters), source.features, graph, seen)
        off = parity.action_difference > ACTION_TOLERANCE, parity.scores_difference > SCORES_TOLERANCE
        if any(off):
            raise ArithmeticError(
                f"ONNX differs from JAX by {parity.action_difference:.1e} in actions and "
                f"{parity.scores_difference:.1e} in scores: allowed are {ACTION_TOLERANCE:.0e} and "
                f"{SCORES_TOLERANCE:.0e}"
            )
        golden = {name: np.stack([observation[name] for observation in seen]) for name in seen[0]}
        arrays: dict[str, Any] = {**golden, "action": parity.actions}
        np.savez_compressed(partial / "golden.npz", **arrays)
        manifest = {
            "schema": 1,
            "policy": describe(source.config),
            "inputs": {name: list(shape) for name, shape in policy.observation_shapes.items()},
            "outputs": {"action": [policy.action_size]},
            "parity": {
                "observations": parity.observations,
                "action_difference": parity.action_difference,
                "scores_difference": parity.scores_difference,
            },
            "flops": count_step(policy).summary(),
            "run": source.run,
        }
        text = json.dumps(manifest, indent=2)
        (partial / MANIFEST).write_text(text + "\n")
        partial.chmod(0o755)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    written: dict[str, Any] = json.loads(text)
    return written


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, with the price of a step as `FlopCount.summary` gave it under `flops`.

    Raises ValueError, in one line, where it is damaged or tells no price, FileNotFoundError where there is
    none.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except ValueError as error:  # text that is no JSON, bytes that are no text
        raise ValueError(f"{str(path)!r} is no manifest: {error}") from error
    parts = ("policy", "flops", "run") if isinstance(manifest, dict) else ()
    missing = [part for part in parts if not isinstance(manifest.get(part), dict)]
    if not parts or missing:
        raise ValueError(
            f"{str(path)!r} lacks {missing[0] if missing else 'everything'}: it was written by an older or "
            "another program, so export the run again"
        )
    try:
        check_summary(manifest["flops"])
    except ValueError as error:
        raise ValueError(f"flops in {str(path)!r}: {error}") from error
    return manifest
