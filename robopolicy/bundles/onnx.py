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

from robopolicy.bundles.graph_cache import cache_path, fetch, store
from robopolicy.bundles.outputs import Units
from robopolicy.policies.catalogue import PolicyConfig, by_path, describe
from robopolicy.runtime.graph import OnnxPolicy
from robopolicy.writing import scratch, whole

DESCRIPTION, ARRAYS = "policy.json", "arrays.npz"
PARAMETERS = ".parameters"  # among the arrays, whose other names are paths of features


def export_policy(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None = None
) -> None:
    """Write the policy of `config` to `path`, atomically, as rollout workers run it.

    Its outputs are `action` [A] and the `scores` that determine it. `features` and the flat vector
    `parameters` [P] become constants. Without `parameters` they become the input `parameters` [P], and the
    statistics of observations, if the policy normalises any, the input `normaliser` [2K]. The arrays of a
    state are inputs and outputs, too (`OnnxPolicy`).

    Raises RuntimeError, with the converter's last error, if it fails; ValueError if onnxruntime cannot run
    the graph; FileNotFoundError if the folder of `path` does not exist.
    """
    with conversion(config, features, path, parameters, None):
        pass


def worker_graph(config: PolicyConfig, features: Any) -> bytes:
    """The graph that evaluators send to their workers, as `export_policy` writes it without parameters."""
    with scratch() as folder:
        path = folder / "policy.onnx"
        export_policy(config, features, path)
        return path.read_bytes()


@contextmanager
def conversion(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None, units: Units | None
) -> Iterator[None]:
    """Write the graph of `export_policy` to `path`, from the cache or by a conversion while the block runs.

    With `units` it computes `bundles.outputs.OUTPUTS` from raw readings, as robots run it. An error in the
    block ends the converter, which has a process of its own, since it alters JAX. Raises as `export_policy`.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for {path.name} does not exist")
    described = {"policy": describe(config), "units": None if units is None else units._asdict()}
    arrays: dict[str, Any] = by_path(features)
    if parameters is not None:
        arrays[PARAMETERS] = np.asarray(parameters, np.float32)
    cached = cache_path(described, arrays)
    with whole(path) as partial:
        if fetch(cached, partial):
            yield
            return
        with scratch() as folder:
            (folder / DESCRIPTION).write_text(json.dumps(described))
            np.savez(folder / ARRAYS, **arrays)
            process = _converter(folder, partial)
            try:
                yield
                _, stderr = process.communicate()
            finally:
                process.kill()
                process.wait()
        if process.returncode:
            errors = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", stderr, re.MULTILINE)
            why = errors[-1] if errors else f"the converter ended with exit code {process.returncode}"
            raise RuntimeError(f"conversion to ONNX failed: {why}")
        try:
            OnnxPolicy(partial, np.zeros(0, np.float32))
        except ValueError as error:
            raise ValueError(
                f"attention is {config.attention!r}: its graph is {error}; fewer vectors may do"
            ) from error
        store(partial, cached)


def _converter(folder: Path, out: Path) -> subprocess.Popen[str]:
    # The conversion needs no accelerator, and must not take memory from one. It compiles code that runs once.
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "robopolicy.bundles.convert", str(folder), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )
