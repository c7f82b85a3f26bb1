"""Policies as ONNX graphs of one observation, no batch; input names are the observation's names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robopolicy.bundles.kept import fetch, keep, place_of
from robopolicy.bundles.outputs import Units
from robopolicy.policies.catalogue import PolicyConfig, by_path, describe
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.writing import scratch, whole

DESCRIPTION, ARRAYS = "policy.json", "arrays.npz"
PARAMETERS = ".parameters"  # among the arrays, whose other names are paths of features


def export_policy(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None = None
) -> None:
    """Write the policy of `config` to `path`, whole or not at all, as rollout workers run it.

    Its outputs are `action` [A] and `scores`, what the action was chosen by. `features` are baked in. So is
    the flat vector `parameters` [P] where it is given. Otherwise it becomes the input `parameters`, and what
    `policies.base.with_normaliser` reads the input `normaliser` [2K], if the policy normalises anything.

    Raises RuntimeError with the converter's last words where it fails, FileNotFoundError where the folder of
    `path` does not exist.
    """
    with _conversion(config, features, path, parameters, None):
        pass


def worker_graph(config: PolicyConfig, features: Any) -> bytes:
    """The graph that evaluators hand to their workers, as `export_policy` writes it without parameters."""
    with scratch() as folder:
        path = folder / "policy.onnx"
        export_policy(config, features, path)
        return path.read_bytes()


@contextmanager
def export_with_units(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike, units: Units
) -> Iterator[None]:
    """Write the policy of `config` to `path`, as robots run it: from raw readings to commands in `units`.

    It is converted while the block runs, and is there after its end. Its outputs are those of
    `export.outputs`. Raises what `export_policy` raises.
    """
    with _conversion(config, features, path, parameters, units):
        yield


@contextmanager
def _conversion(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None, units: Units | None
) -> Iterator[None]:
    """Write the graph to `path`: the one that an earlier conversion kept, or a new one.

    The converter runs while the block runs, and an error in the block ends it. It has a process of its own,
    since it alters JAX in the one that it runs in.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for {path.name} does not exist")
    described = {"policy": describe(config), "units": None if units is None else units._asdict()}
    arrays: dict[str, Any] = by_path(features)
    if parameters is not None:
        arrays[PARAMETERS] = np.asarray(parameters, np.float32)
    kept = place_of(described, arrays)
    with whole(path) as partial:
        if fetch(kept, partial):
            yield
            return
        with scratch() as given:
            (given / DESCRIPTION).write_text(json.dumps(described))
            np.savez(given / ARRAYS, **arrays)
            process = _converter(given, partial)
            try:
                yield
                _, complaint = process.communicate()
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            said = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", complaint, re.MULTILINE)
            raise RuntimeError(f"conversion to ONNX failed: {said[-1] if said else 'it said nothing'}")
        try:
            OnnxPolicy(partial, np.zeros(0, np.float32))
        except ValueError as error:
            raise ValueError(
                f"attention is {config.attention!r}: its graph is {error}; fewer vectors may do"
            ) from error
        keep(partial, kept)


def _converter(given: Path, out: Path) -> subprocess.Popen[str]:
    # The conversion needs no accelerator, and must not take memory from one; what it compiles on the way runs
    # once.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    return subprocess.Popen(
        [sys.executable, "-m", "robopolicy.bundles.convert", str(given), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
