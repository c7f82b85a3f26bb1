"""What `robopolicy doctor` advises: commands and sentences that fit this Python and this machine.

An advice is one or more clauses, with "; or " between them. Each is a sentence, or a command for a shell.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

OR = "; or "


def install(*requirements: str, again: bool = False) -> str:
    """The command that installs requirements for this Python, whether or not it has pip."""
    python = shlex.quote(sys.executable)
    if find_spec("pip"):
        pip = f"{python} -m pip install"
    elif shutil.which("uv") or not find_spec("ensurepip"):
        pip = f"uv pip install --python {python}"
    else:
        pip = f"{python} -m ensurepip && {python} -m pip install"
    return " ".join([pip, *(["--force-reinstall"] if again else []), *map(shlex.quote, requirements)])


def install_checkout() -> str:
    """The command that installs the checkout in which this file is, with the extra `all`."""
    return install("--editable", f"{Path(__file__).parents[2]}[all]")


def machine() -> str:
    """This Python and machine, as wheels tell them apart."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sys.platform} {platform.machine()}"


def for_check(series: str, check: str, others: Sequence[str]) -> str:
    """The advice for a check that failed, or ""; `others` are the other engines that are installed."""
    instead = [f"give --engine {engine}" for engine in others]
    if check == "opengl":
        return OR.join([*_opengl(), "give --renderer software"])
    if series == "bullet":
        # Where it has no wheel, it would be compiled.
        again = [install("pybullet", again=True)] if has_bullet_wheel() else []
        return OR.join([*again, *instead])
    if series == "mujoco":
        return OR.join([install("mujoco", "numba", again=True), *instead])
    packages = {"jax": ("jax", "jaxlib", "flax"), "ffmpeg": ("imageio-ffmpeg",)}.get(series, ())
    return install(*packages, again=True) if packages else ""


def for_error(error: str) -> str:
    """The advice for an error that names a missing library of the system, or a missing folder; or ""."""
    if "cannot cache function" in error:  # numba's words
        return "set NUMBA_CACHE_DIR to a folder that can be written to"
    match = re.search(r"(lib[\w+-]+)\.so[.\d]*: cannot open shared object", error)
    if match is None:
        return ""
    package = {"libgomp": "libgomp1", "libEGL": "libegl1", "libGL": "libgl1"}.get(match[1], "")
    return f"apt-get install {package}" if package and shutil.which("apt-get") else f"install {match[1]}"


def _opengl() -> list[str]:
    return ["apt-get install libegl1 libgl1"] if shutil.which("apt-get") else ["install OpenGL with EGL"]


def has_bullet_wheel() -> bool:
    """Whether PyBullet has a wheel here, as the extra `bullet` of pyproject.toml says."""
    return sys.version_info < (3, 12) and sys.platform == "linux" and platform.machine() == "x86_64"
