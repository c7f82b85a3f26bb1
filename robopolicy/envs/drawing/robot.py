"""A robot's MJCF description: what it looks like, and where its shapes are."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import numpy as np

from robopolicy.envs.drawing.meshes import Mesh, ball, box, capsule, cylinder, read_obj, scaled
from robopolicy.envs.drawing.scene import Part
from robopolicy.envs.physics import loaded
from robopolicy.envs.physics.base import Array
from robopolicy.naming import one_line

_PHYSICS = loaded("mujoco", "physics.mujoco")
mujoco = _PHYSICS.mujoco
_GEOM = mujoco.mjtGeom
_PRIMITIVES = {
    _GEOM.mjGEOM_BOX: lambda size: box(size),
    _GEOM.mjGEOM_SPHERE: lambda size: ball(size[0]),
    _GEOM.mjGEOM_CAPSULE: lambda size: capsule(size[0], 2 * size[1]),
    _GEOM.mjGEOM_CYLINDER: lambda size: cylinder(size[0], 2 * size[1]),
}
_HIDDEN = 3  # the first group of geoms that MuJoCo does not show
_UNCOLOURED = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour of a geom that names none
_ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Robot:
    """The visible shapes of a robot. MuJoCo reads its description and computes its kinematics.

    Attributes:
      parts: the shapes with their colours.
      is_moving: [P], whether each part moves when the base link stands still.
      joints: names of its hinges, in the order of `poses`.
    """

    def __init__(self, path: Path) -> None:
        """Read the MJCF file `path`.

        Raises FileNotFoundError or ValueError, in one line, for a file that is no MJCF or does not compile,
        for a mesh that is missing or bad, and for a shape of another kind than a mesh, box, sphere, capsule
        or cylinder.
        """
        try:
            spec = mujoco.MjSpec.from_file(str(path))
        except ValueError as error:
            raise ValueError(one_line(f"robot {path} is not read: {error}")) from error
        files = {mesh.name: mesh for mesh in spec.meshes}
        shown = [geom for geom in spec.geoms if geom.group < _HIDDEN]
        visible = [geom for geom in shown if _colour(spec, geom)[3] > 0]
        meshes: list[Mesh | None] = []
        for geom in visible:
            is_mesh = geom.type == _GEOM.mjGEOM_MESH
            meshes.append(_mesh(path.parent / spec.meshdir, files[geom.meshname]) if is_mesh else None)
            if is_mesh:
                # MuJoCo would move the frame of a mesh to its centre of mass.
                geom.type, geom.meshname, geom.size = _GEOM.mjGEOM_SPHERE, "", [1.0, 0.0, 0.0]
            elif geom.type not in _PRIMITIVES:
                raise ValueError(f"robot {path} has a geom of type {geom.type.name}, which is not drawn")
        self.joints = [joint.name for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_HINGE]
        self._model = _PHYSICS.compiled(spec, path, "robot")
        self._threads = threading.local()  # MuJoCo lets other threads run while it computes
        self._shown = np.array([geom.id for geom in visible], int)
        bodies = self._model.geom_bodyid[self._shown]
        self.is_moving = self._model.body_weldid[bodies] > 0
        sizes = self._model.geom_size[self._shown].tolist()
        self.parts = [
            Part(mesh or _PRIMITIVES[geom.type](size), tuple(_colour(spec, geom)[:3]))
            for geom, mesh, size in zip(visible, meshes, sizes, strict=True)
        ]

    def poses(self, joints: Array, base: Array) -> Array:
        """Poses [P, 4, 4] (to world) of the parts, for `joints` [J] (rad), the base at `base` [4, 4]."""
        model = self._model
        if not hasattr(self._threads, "data"):
            self._threads.data = mujoco.MjData(model)
        data = self._threads.data
        floating = model.nq - len(joints)
        data.qpos[:floating] = _ORIGIN[:floating]
        data.qpos[floating:] = joints
        mujoco.mj_kinematics(model, data)
        out = np.zeros((len(self.parts), 4, 4))
        out[:, :3, :3] = data.geom_xmat[self._shown].reshape(-1, 3, 3)
        out[:, :3, 3] = data.geom_xpos[self._shown]
        out[:, 3, 3] = 1.0
        placed: Array = base @ out
        return placed


def _colour(spec: Any, geom: Any) -> Array:
    """The colour [4] of a geom: its own, or that of its material if it has none."""
    has_own = not geom.material or not np.array_equal(geom.rgba, _UNCOLOURED)
    colour: Array = geom.rgba if has_own else spec.material(geom.material).rgba
    return colour


def _mesh(folder: Path, mesh: Any) -> Mesh:
    if not mesh.file:
        raise ValueError(f"mesh {mesh.name!r} has no file: it must be an OBJ file")
    return scaled(read_obj(folder / mesh.file), mesh.scale)


@functools.cache
def read_robot(path: Path) -> Robot:
    """The robot of an MJCF file, read once in a process."""
    return Robot(path)
