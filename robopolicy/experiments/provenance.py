"""Versions and commit of the code, for a run's config.json."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "robopolicy numpy jax flax jax2onnx onnx evosax evojax onnxruntime numba scipy h5py minari gymnasium "
    "mujoco pybullet opencv-python-headless"
).split()


def versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that a result may depend on."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            result[name] = version(name)
    return result


def git_revision() -> dict[str, Any] | None:
    """The commit of this code, and whether the package differs from it; None outside of a repository."""
    package = Path(__file__).parents[1]
    try:
        commit = _git(package, "rev-parse", "HEAD")
        # robopolicy may be installed inside the checkout of another project.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        return {"commit": commit, "modified": bool(_git(package, "status", "--porcelain", "--", "."))}
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
