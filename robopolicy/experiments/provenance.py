"""What a run was made with, for its config."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "robopolicy",
    "numpy",
    "jax",
    "flax",
    "jax2onnx",
    "onnx",
    "evosax",
    "evojax",
    "onnxruntime",
    "numba",
    "scipy",
    "h5py",
    "minari",
    "gymnasium",
    "mujoco",
    "pybullet",
)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result may depend on, as far as they are installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def git_revision() -> dict[str, Any] | None:
    """Commit of the code that runs, and whether its files differ from it; None where git knows none."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        # A checkout that robopolicy is merely installed into is somebody else's.
        _git(folder, "ls-files", "--error-unmatch", str(folder.parent / "__init__.py"))
        return {"commit": commit, "modified": bool(_git(folder, "status", "--porcelain", "--", "."))}
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    told = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return told.stdout.strip()
