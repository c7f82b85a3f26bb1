"""Physics engines by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from robopolicy.envs.physics.arms import ArmsPhysics
from robopolicy.envs.physics.base import Array, Physics

ENGINES = ("bullet", "mujoco")


def default_engine() -> str:
    """Bullet where it is installed, which has no wheel for Python 3.12 and later; MuJoCo elsewhere."""
    return "bullet" if find_spec("pybullet") else "mujoco"


def renderer(engine: str) -> str:
    """What draws the arms' pictures: the same scene has other pixels in another renderer."""
    if engine == "bullet":
        return "TinyRenderer"
    with _loading(engine):
        import robopolicy.envs.physics.mujoco  # noqa: F401  (chooses how it is going to draw)

    return f"MuJoCo {os.environ.get('MUJOCO_GL', 'glfw')}"


def make_physics(engine: str, *, visible: bool) -> Physics:
    """The quadruped in one of `ENGINES`; `visible` if pictures are going to be drawn.

    Raises ModuleNotFoundError, in one line, for an engine that is not installed, RuntimeError for one that
    cannot be loaded.
    """
    # Imported here so that a task can be described without any engine.
    if engine == "bullet":
        with _loading(engine):
            from robopolicy.envs.physics.bullet import BulletPhysics
        return BulletPhysics(visible=visible)
    with _loading(engine):
        from robopolicy.envs.physics.mujoco import MujocoPhysics
    return MujocoPhysics(visible=visible)


def make_arms(engine: str, tool: Array) -> ArmsPhysics:
    """Two arms in one of `ENGINES`; `tool` [4, 4] is the spatula's place in the frame of an arm's last link.

    Raises as `make_physics` does; both engines read the arm from what is installed with pybullet.
    """
    if engine == "bullet":
        with _loading(engine):
            from robopolicy.envs.physics.bullet_arms import BulletArms
        return BulletArms(tool)
    with _loading(engine):
        from robopolicy.envs.physics.mujoco_arms import MujocoArms
    return MujocoArms(tool)


@contextmanager
def _loading(engine: str) -> Iterator[None]:
    """For the import of what needs `engine`, and nothing else: what fails later is no matter of loading."""
    package = {"bullet": "pybullet", "mujoco": "mujoco"}[engine]
    if not find_spec(package):
        raise ModuleNotFoundError(f"engine is {engine!r}, which needs the package {package}")
    try:
        yield
    except ModuleNotFoundError:
        raise
    except Exception as error:
        if engine != "mujoco":
            raise
        # With an OpenGL that is not there, MuJoCo fails in many ways to be imported.
        chosen = os.environ.get("MUJOCO_GL")
        raise RuntimeError(f"mujoco cannot be loaded, with MUJOCO_GL={chosen}: {error}") from error
