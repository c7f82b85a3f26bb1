"""Physics engines by name."""

from __future__ import annotations

import os
from importlib.util import find_spec

from robopolicy.envs.physics.base import Physics

ENGINES = ("bullet", "mujoco")


def default_engine() -> str:
    """Bullet where it is installed, which has no wheel for Python 3.12 and later; MuJoCo elsewhere."""
    return "bullet" if find_spec("pybullet") else "mujoco"


def make_physics(engine: str, *, visible: bool) -> Physics:
    """The robot in one of `ENGINES`; `visible` if pictures are going to be drawn.

    Raises ModuleNotFoundError, in one line, for an engine that is not installed, RuntimeError for one that
    cannot be loaded.
    """
    package = {"bullet": "pybullet", "mujoco": "mujoco"}[engine]
    if not find_spec(package):
        raise ModuleNotFoundError(f"engine is {engine!r}, which needs the package {package}")
    # Imported here so that a task can be described without any engine.
    if engine == "bullet":
        from robopolicy.envs.physics.bullet import BulletPhysics

        return BulletPhysics(visible=visible)
    try:
        from robopolicy.envs.physics.mujoco import MujocoPhysics
    except Exception as error:  # with an OpenGL that is not there, MuJoCo fails in many ways to be imported
        chosen = os.environ.get("MUJOCO_GL")
        raise RuntimeError(f"mujoco cannot be loaded, with MUJOCO_GL={chosen}: {error}") from error

    return MujocoPhysics(visible=visible)
