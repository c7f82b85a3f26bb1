"""Which part of the package may import which, and what importing it costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robopolicy

ROOT = Path(robopolicy.__file__).parent
REPOSITORY = Path(__file__).parents[1]
MODULES = sorted(ROOT.rglob("*.py"))
ENGINES = ("pybullet", "pybullet_data", "pybullet_utils", "mujoco")
ROOMS = (
    *(
        "attention",
        "bundles",
        "cli",
        "control",
        "costs",
        "doctor",
        "envs",
        "experiments",
        "plan",
        "policies",
        "runtime",
    ),
    *("training", "unitree", "viz"),
)


def others(*mine: str) -> tuple[str, ...]:
    return tuple(f"robopolicy.{room}" for room in ROOMS if room not in mine)


ABOVE = ("robopolicy.cli", "robopolicy.experiments")
FORBIDDEN = {
    "attention": ("flax", *ENGINES, *others("attention")),
    "control": ("jax", "flax", "gymnasium", *ENGINES, *others("control")),
    "envs": ("jax", "flax", "robopolicy.envs.batched", *others("envs", "control")),
    "envs/batched": ("flax", *others("envs", "control")),
    "policies": (*ENGINES, *others("policies", "attention")),
    "runtime": ("jax", "flax", "gymnasium", *ENGINES, *others("runtime")),
    "unitree": ("jax", "flax", "gymnasium", *ENGINES, *others("unitree", "control", "runtime")),
    "training": (
        *ENGINES,
        *ABOVE,
        "robopolicy.envs",
        "robopolicy.control",
        "robopolicy.bundles",
        "robopolicy.viz",
    ),
    "bundles": (*ENGINES, *ABOVE, "robopolicy.envs", "robopolicy.training"),
    "plan": (*ENGINES, *ABOVE, "robopolicy.envs", "robopolicy.training", "robopolicy.viz"),
    "experiments": (*ENGINES, "robopolicy.cli", "tyro", "rich"),
    "doctor": (*ENGINES, *ABOVE),
    "viz": (*ENGINES, *ABOVE, "robopolicy.envs", "robopolicy.training"),
    "costs": (*ENGINES, *others("costs", "policies")),
}


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return "envs/batched" if parts[:2] == ("envs", "batched") else parts[0]


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
    files = [p for p in MODULES if room_of(p) == room]
    assert files
    wrong = {(p.name, n) for p in files for n in imported(p) if under(n, FORBIDDEN[room])}
    assert not wrong


def test_one_file_an_engine():
    users = {p.relative_to(ROOT).as_posix() for p in MODULES for n in imported(p) if under(n, ENGINES)}
    assert users == {"envs/physics/bullet.py", "envs/physics/mujoco.py"}


def test_nobody_imports_the_commands():
    outside = [p for p in MODULES if p.relative_to(ROOT).parts[0] not in ("cli", "__main__.py")]
    for folder in ("benchmarks", "examples"):
        outside += sorted((REPOSITORY / folder).rglob("*.py"))
    assert not [p for p in outside if any(under(n, ("robopolicy.cli",)) for n in imported(p))]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("robopolicy", ("jax", "flax", *ENGINES, "onnxruntime", "gymnasium", "numpy")),
        ("robopolicy.runtime.graph", ("jax", "flax", *ENGINES)),
        ("robopolicy.training.worker", ("jax", "flax", *ENGINES)),
        ("robopolicy.cli", ("jax", "flax", *ENGINES, "matplotlib", "cv2", "numpy", "gymnasium")),
    ],
)
def test_importing_it_starts_nothing_heavy(module, absent):
    code = f"import sys, {module}; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in out.split()}
    assert not loaded & set(absent)


@pytest.mark.parametrize(
    "imports",
    [
        "import gymnasium, robopolicy",
        "import robopolicy, gymnasium",
        "import robopolicy.envs, gymnasium",
        "import importlib.util, robopolicy; importlib.util.find_spec('gymnasium'); import gymnasium",
    ],
)
def test_the_tasks_are_registered_whatever_is_imported_first(imports):
    code = f"{imports}; print(gymnasium.spec('robopolicy/SteppingStones-v0').entry_point)"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert run.stdout.endswith(":SteppingStones\n"), run.stderr


def test_without_gymnasium_the_rest_of_the_package_works():
    code = "import sys; sys.modules['gymnasium'] = None; import robopolicy.runtime.manifest"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
