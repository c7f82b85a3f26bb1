"""Which part of the package may import which, and what importing it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robopolicy

ROOT = Path(robopolicy.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
ENGINES = ("pybullet", "pybullet_data", "pybullet_utils", "mujoco")
ROOMS = (
    *(
        "attention",
        "cli",
        "doctor",
        "envs",
        "export",
        "flops",
        "memory",
        "plan",
        "policies",
        "runtime",
        "training",
    ),
    "viz",
)


def others(*mine: str) -> tuple[str, ...]:
    return tuple(f"robopolicy.{room}" for room in ROOMS if room not in mine)


FORBIDDEN = {
    "attention": ("flax", *ENGINES, *others("attention")),
    "envs": ("jax", "flax", *others("envs")),
    "policies": (*ENGINES, *others("policies", "attention")),
    "runtime": ("jax", "flax", "gymnasium", *ENGINES, *others("runtime")),
    "training": (*ENGINES, "robopolicy.cli", "robopolicy.envs", "robopolicy.export", "robopolicy.viz"),
    "export": (*ENGINES, "robopolicy.cli", "robopolicy.envs", "robopolicy.training"),
    "plan": (*ENGINES, "robopolicy.cli", "robopolicy.envs", "robopolicy.training", "robopolicy.viz"),
    "doctor": (*ENGINES, "robopolicy.cli"),
    "viz": (*ENGINES, "robopolicy.cli", "robopolicy.envs", "robopolicy.training"),
    "flops.py": (*ENGINES, "robopolicy.cli", "robopolicy.envs", "robopolicy.training"),
    "memory.py": ("flax", *ENGINES, *others("memory")),
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return names


def under(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


@pytest.mark.parametrize("room", FORBIDDEN)
def test_a_room_imports_only_what_it_may(room):
    files = [p for p in MODULES if p.relative_to(ROOT).parts[0] == room]
    assert files
    wrong = {(p.name, n) for p in files for n in imported(p) if under(n, FORBIDDEN[room])}
    assert not wrong


def test_one_file_an_engine():
    users = {p.relative_to(ROOT).as_posix() for p in MODULES for n in imported(p) if under(n, ENGINES)}
    assert users == {"envs/physics/bullet.py", "envs/physics/mujoco.py"}


def test_nobody_imports_the_commands():
    outside = [p for p in MODULES if p.relative_to(ROOT).parts[0] not in ("cli", "__main__.py")]
    assert not [p for p in outside if any(under(n, ("robopolicy.cli",)) for n in imported(p))]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("robopolicy", ("jax", "flax", *ENGINES, "onnxruntime")),
        ("robopolicy.runtime.graph", ("jax", "flax", *ENGINES)),
        ("robopolicy.training.worker", ("jax", "flax", *ENGINES)),
        ("robopolicy.cli", ("jax", "flax", *ENGINES, "matplotlib", "cv2")),
    ],
)
def test_importing_it_starts_nothing_heavy(module, absent):
    code = f"import sys, {module}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in out.split()}
    assert not loaded & set(absent)
