"""Physics engines by name."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from robopolicy.envs.physics.arms import ArmsPhysics
from robopolicy.envs.physics.base import Array, Physics

PACKAGES = {"bullet": "pybullet", "mujoco": "mujoco"}
ENGINES = tuple(PACKAGES)


def default_engine() -> str:
    """Bullet if it is installed (it has no wheel for Python 3.12 and later), otherwise MuJoCo."""
    return "bullet" if find_spec("pybullet") else "mujoco"


def renderer(engine: str) -> str:
    """The name of the engine's renderer. Pictures of the same scene differ between renderers."""
    if engine == "bullet":
        return "TinyRenderer"
    _loaded(engine, "mujoco")  # sets MUJOCO_GL
    return f"MuJoCo {os.environ.get('MUJOCO_GL', 'glfw')}"


def make_physics(engine: str, *, visible: bool) -> Physics:
    """The quadruped in one of `ENGINES`. Rendering needs `visible`.

    Raises ModuleNotFoundError, in one line, if the engine is not installed, RuntimeError if it does not load.
    """
    physics: Physics = getattr(_loaded(engine, engine), f"{engine.title()}Physics")(visible=visible)
    return physics


def make_arms(engine: str, tool: Array, *, visible: bool) -> ArmsPhysics:
    """Two arms in one of `ENGINES`; `tool` [4, 4] is the spatula's pose in the frame of an arm's last link.

    Rendering needs `visible`. Raises as `make_physics` does.
    """
    physics: ArmsPhysics = getattr(_loaded(engine, f"{engine}_arms"), f"{engine.title()}Arms")(
        tool, visible=visible
    )
    return physics


def _loaded(engine: str, module: str) -> ModuleType:
    """A module of this package, imported only now so that the tasks' descriptions work without an engine."""
    if not find_spec(PACKAGES[engine]):
        raise ModuleNotFoundError(f"engine is {engine!r}, which needs the package {PACKAGES[engine]}")
    try:
        return import_module(f"{__name__}.{module}")
    except ModuleNotFoundError:
        raise
    except Exception as error:
        if engine != "mujoco":
            raise
        # Without OpenGL, the import of MuJoCo raises many different exceptions.
        backend = os.environ.get("MUJOCO_GL")
        raise RuntimeError(f"mujoco cannot be loaded, with MUJOCO_GL={backend}: {error}") from error
