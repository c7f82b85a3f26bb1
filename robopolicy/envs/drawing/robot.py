"""A robot's MJCF description: what it looks like, and where its shapes are."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from robopolicy.envs.drawing.meshes import Mesh, ball, box, capsule, cylinder, read_obj
from robopolicy.envs.drawing.scene import Part
from robopolicy.envs.physics import loaded
from robopolicy.envs.physics.base import Array

mujoco = loaded("mujoco", "mujoco").mujoco
_GEOM = mujoco.mjtGeom
_PRIMITIVES = {
    _GEOM.mjGEOM_BOX: lambda size: box(size),
    _GEOM.mjGEOM_SPHERE: lambda size: ball(size[0]),
    _GEOM.mjGEOM_CAPSULE: lambda size: capsule(size[0], 2 * size[1]),
    _GEOM.mjGEOM_CYLINDER: lambda size: cylinder(size[0], 2 * size[1]),
}
_ORIGIN = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)


class Robot:
    """The visible shapes of a robot. MuJoCo reads its description and computes its kinematics.

    Attributes:
      parts: the shapes with their colours.
      is_moving: [P], whether each part moves when the base link stands still.
    """

    def __init__(self, path: Path) -> None:
        """Read the MJCF file `path`.

        Raises FileNotFoundError or ValueError, in one line, for a mesh that is missing or bad, and for a
        shape of another kind than a mesh, box, sphere, capsule or cylinder.
        """
        spec = mujoco.MjSpec.from_file(str(path))
        files = {mesh.name: path.parent / mesh.file for mesh in spec.meshes}
        visible = [geom for geom in spec.geoms if geom.rgba[3] > 0]
        meshes: list[Mesh | None] = []
        for geom in visible:
            is_mesh = geom.type == _GEOM.mjGEOM_MESH
            meshes.append(read_obj(files[geom.meshname]) if is_mesh else None)
            if is_mesh:
                # MuJoCo would move the frame of a mesh to its centre of mass.
                geom.type, geom.meshname, geom.size = _GEOM.mjGEOM_SPHERE, "", [1.0, 0.0, 0.0]
            elif geom.type not in _PRIMITIVES:
                raise ValueError(f"robot {path} has a geom of type {geom.type.name}, which is not drawn")
        self._model = spec.compile()
        self._data = mujoco.MjData(self._model)
        self._shown = np.array([geom.id for geom in visible])
        bodies = self._model.geom_bodyid[self._shown]
        self.is_moving = self._model.body_weldid[bodies] > 0
        sizes = self._model.geom_size[self._shown].tolist()
        self.parts = [
            Part(mesh or _PRIMITIVES[geom.type](size), tuple(geom.rgba[:3]))
            for geom, mesh, size in zip(visible, meshes, sizes, strict=True)
        ]

    def poses(self, joints: Array, base: Array) -> Array:
        """Poses [P, 4, 4] (to world) of the parts, for `joints` [J] (rad), the base at `base` [4, 4]."""
        model, data = self._model, self._data
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


@functools.cache
def read_robot(path: Path) -> Robot:
    """The robot of an MJCF file, read once in a process."""
    return Robot(path)
