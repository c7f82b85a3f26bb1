"""Physics engines by name."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from robopolicy.control.robot import Robot
from robopolicy.envs.physics.arms import ArmsPhysics
from robopolicy.envs.physics.base import Array, Physics
from robopolicy.naming import one_line, one_of

PACKAGES = {"bullet": "pybullet", "mujoco": "mujoco", "jax": "jax"}
ENGINES = tuple(PACKAGES)
_QUADRUPEDS = {
    "bullet": ("physics.bullet", "BulletPhysics"),
    "mujoco": ("physics.mujoco", "MujocoPhysics"),
    "jax": ("batched.physics", "JaxPhysics"),
}
_ARMS = {
    "bullet": ("physics.bullet_arms", "BulletArms"),
    "mujoco": ("physics.mujoco_arms", "MujocoArms"),
}
ARM_ENGINES = tuple(_ARMS)
# With the engine to which each belongs: "software" is ours, "tiny" Bullet's, "opengl" MuJoCo's.
RENDERERS = {"software": None, "tiny": "bullet", "opengl": "mujoco"}


def is_installed(engine: str) -> bool:
    """Whether the package of one of `ENGINES` is installed."""
    return find_spec(PACKAGES[engine]) is not None


def default_engine(renderer: str | None = None) -> str:
    """The engine that `renderer` needs. If it needs none: Bullet if it is installed, otherwise MuJoCo.

    Bullet has wheels for Python 3.11 on Linux and x86_64 alone.
    """
    needed = RENDERERS.get(renderer) if isinstance(renderer, str) else None
    return needed or ("bullet" if is_installed("bullet") else "mujoco")


def check_renderer(renderer: str, engine: str) -> str:
    """Return `renderer` if it draws the worlds of `engine`; otherwise raise ValueError, in one line."""
    needed = RENDERERS[one_of("renderer", renderer, RENDERERS)]
    if needed not in (None, engine):
        allowed = " or ".join(repr(name) for name, its in RENDERERS.items() if its in (None, engine))
        raise ValueError(
            f"renderer is {renderer!r}, which draws for engine {needed!r}: for engine {engine!r} it must be "
            f"{allowed}"
        )
    return renderer


def make_physics(engine: str, robot: Robot, *, visible: bool, control_period: float = 0.01) -> Physics:
    """A quadruped in one of `ENGINES`. Rendering needs `visible`; `control_period` in seconds.

    Raises ModuleNotFoundError, in one line, if the engine is not installed, RuntimeError if it does not load,
    and ValueError for a robot that the engine does not have, or whose table does not fit its model, and for a
    control period that is no multiple of a physics step.
    """
    module, name = _QUADRUPEDS[engine]
    kind = getattr(loaded(engine, module), name)
    physics: Physics = kind(robot, kind.settings(robot, control_period), visible=visible)
    return physics


def make_arms(engine: str, tool: Array, *, visible: bool) -> ArmsPhysics:
    """Two arms in one of `ARM_ENGINES`; `tool` [4, 4] is the spatula's pose in the last link's frame.

    Rendering needs `visible`. Raises as `make_physics` does.
    """
    module, name = _ARMS[engine]
    physics: ArmsPhysics = getattr(loaded(engine, module), name)(tool, visible=visible)
    return physics


def loaded(engine: str, module: str) -> ModuleType:
    """A module of `robopolicy.envs`, imported only now so that the tasks' descriptions work without engines.

    Raises ModuleNotFoundError or RuntimeError, in one line, for an engine that is missing or does not load.
    """
    if not is_installed(engine):
        hint = (
            ": install it on Python 3.11 on Linux and x86_64, or choose 'mujoco'"
            if engine == "bullet"
            else ""
        )
        raise ModuleNotFoundError(f"engine is {engine!r}, which needs the package {PACKAGES[engine]}{hint}")
    try:
        return import_module(f"robopolicy.envs.{module}")
    except ModuleNotFoundError:
        raise
    except Exception as error:
        # Without OpenGL, the import of MuJoCo raises many different exceptions.
        backend = f", with MUJOCO_GL={os.environ.get('MUJOCO_GL')}" if engine == "mujoco" else ""
        raise RuntimeError(one_line(f"{engine} cannot be loaded{backend}: {error}")) from error
