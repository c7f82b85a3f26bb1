"""Policies as ONNX graphs.

Input names are the observation's names, and `parameters` [P] where they are not baked in; outputs are
`action` [A] and `scores`, what the action was chosen by. All float32, one observation, no batch.
"""

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

from robopolicy.policies.catalogue import PolicyConfig, by_path, describe

DESCRIPTION, FEATURES, PARAMETERS = "policy.json", "features.npz", "parameters.npy"


def export_policy(
    config: PolicyConfig, features: Any, path: Path, parameters: ArrayLike | None = None
) -> None:
    """Write the policy of `config` to `path`, whole or not at all.

    `features` are baked in. So is the flat vector `parameters` [P] where it is given; otherwise what
    `policies.base.split` reads becomes an input of the graph. The converter runs in a process of its own,
    since it alters JAX in the one that it runs in. Raises RuntimeError with its last words where it fails,
    FileNotFoundError where the folder of `path` does not exist.
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} for {path.name} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        given = Path(folder)
        (given / DESCRIPTION).write_text(json.dumps(describe(config)))
        arrays: dict[str, Any] = by_path(features)
        np.savez(given / FEATURES, **arrays)
        if parameters is not None:
            np.save(given / PARAMETERS, np.asarray(parameters, np.float32))
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            run = subprocess.run(
                [sys.executable, "-m", "robopolicy.export.convert", folder, str(partial)],
                capture_output=True,
                text=True,
                # The conversion needs no accelerator, and must not take memory from one.
                env={**os.environ, "JAX_PLATFORMS": "cpu"},
            )
            if run.returncode:
                said = re.findall(r"^\w[\w.]*(?:Error|Exception)\b.*", run.stderr, re.MULTILINE)
                raise RuntimeError(f"conversion to ONNX failed: {said[-1] if said else 'it said nothing'}")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
