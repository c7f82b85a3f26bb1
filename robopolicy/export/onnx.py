"""Policies as ONNX graphs of one observation, no batch; input names are the observation's names."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robopolicy.export.outputs import Units
from robopolicy.policies.catalogue import PolicyConfig, by_path, describe

DESCRIPTION, FEATURES, PARAMETERS, UNITS = "policy.json", "features.npz", "parameters.npy", "units.json"


def export_policy(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None = None
) -> None:
    """Write the policy of `config` to `path`, whole or not at all, as rollout workers run it.

    Its outputs are `action` [A] and `scores`, what the action was chosen by. `features` are baked in. So is
    the flat vector `parameters` [P] where it is given; otherwise what `policies.base.split` reads becomes the
    input `parameters`. Raises RuntimeError with the converter's last words where it fails, FileNotFoundError
    where the folder of `path` does not exist.
    """
    _convert(config, features, path, parameters, None)


def worker_graph(config: PolicyConfig, features: Any) -> bytes:
    """The graph that evaluators hand to their workers, as `export_policy` writes it without parameters."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "policy.onnx"
        export_policy(config, features, path)
        return path.read_bytes()


def export_with_units(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike, units: Units
) -> None:
    """Write the policy of `config` to `path`, as robots run it: from raw readings to commands in `units`.

    Its outputs are those of `export.outputs`. Raises what `export_policy` raises.
    """
    _convert(config, features, path, parameters, units)


def _convert(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None, units: Units | None
) -> None:
    """Run the converter in a process of its own, since it alters JAX in the one that it runs in."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for {path.name} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder)
        (given / DESCRIPTION).write_text(json.dumps(describe(config)))
        arrays: dict[str, Any] = by_path(features)
        np.savez(given / FEATURES, **arrays)
        if parameters is not None:
            np.save(given / PARAMETERS, np.asarray(parameters, np.float32))
        if units is not None:
            (given / UNITS).write_text(json.dumps(units._asdict()))
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            run = subprocess.run(
                [sys.executable, "-m", "robopolicy.export.convert", folder, str(partial)],
                capture_output=True,
                text=True,
                # The conversion needs no accelerator, and must not take memory from one; what it compiles on
                # the way runs once.
                env={
                    **os.environ,
                    "JAX_PLATFORMS": "cpu",
                    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0",
                },
            )
            if run.returncode:
                said = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", run.stderr, re.MULTILINE)
                raise RuntimeError(f"conversion to ONNX failed: {said[-1] if said else 'it said nothing'}")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
