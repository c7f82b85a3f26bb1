"""Two depth cameras on a levelled mount, by rays against the stones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array
from robopolicy.envs.quadruped.terrain import Terrain


@dataclass(frozen=True)
class CameraConfig:
    """A depth camera whose mount turns with the robot's yaw and stays level in roll and pitch.

    `position` (m) is relative to the base, `tilt` (deg) the angle of the optical axis from straight down
    towards the front, `fields` (deg) the horizontal and vertical field of view. The first row of an image
    is the farthest ahead, its first column the farthest left.
    """

    position: tuple[float, float, float]
    tilt: float
    fields: tuple[float, float]
    width: int = 32
    height: int = 24
    reach: float = 2.0  # m of depth: what is farther reads as this


FRONT = CameraConfig(position=(0.25, 0.0, 0.0), tilt=30.0, fields=(75.0, 75.0))
BELLY = CameraConfig(position=(0.0, 0.0, -0.05), tilt=0.0, fields=(90.0, 80.0))
CAMERAS = {"front_depth": FRONT, "belly_depth": BELLY}


class DepthCamera:
    """Depth along the optical axis, as a depth camera reports it (not distance along the ray)."""

    def __init__(self, config: CameraConfig) -> None:
        self.config = config
        tan_x, tan_y = np.tan(np.radians(config.fields) / 2)
        right = (np.arange(config.width) + 0.5) / config.width * 2 - 1
        down = (np.arange(config.height) + 0.5) / config.height * 2 - 1
        v, u = np.meshgrid(down * tan_y, right * tan_x, indexing="ij")
        tilt = np.radians(config.tilt)
        axis = np.array([np.sin(tilt), 0.0, -np.cos(tilt)])
        up = np.array([np.cos(tilt), 0.0, np.sin(tilt)])  # of the image: ahead of the robot
        rays = axis - v[..., None] * up + u[..., None] * np.array([0.0, -1.0, 0.0])
        self.rays = rays.reshape(-1, 3)  # yaw frame, of unit depth

    def pose(self, base: Array, yaw: float) -> tuple[Array, Array]:
        """World position [3] and rays [height * width, 3] of unit depth, for a base at `base` [3] (m)."""
        c, s = np.cos(yaw), np.sin(yaw)
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return base + np.array(self.config.position) @ turn, self.rays @ turn

    def image(self, terrain: Terrain, base: Array, yaw: float) -> NDArray[np.float32]:
        """Depth image [height, width] (m) of `terrain`; the robot's own legs are not in it."""
        eye, rays = self.pose(base, yaw)
        depth = np.minimum(self._stone_depth(terrain, eye, rays), self._floor_depth(terrain, eye, rays))
        return self._framed(depth)

    def level_image(self, height: float) -> NDArray[np.float32]:
        """What the camera sees over unbroken level ground, the base `height` metres up."""
        eye = height + self.config.position[2]
        with np.errstate(divide="ignore"):
            depth = np.where(self.rays[:, 2] < 0, -eye / self.rays[:, 2], np.inf)
        return self._framed(depth)

    def _framed(self, depth: Array) -> NDArray[np.float32]:
        clipped = np.minimum(depth, self.config.reach).astype(np.float32)
        return clipped.reshape(self.config.height, self.config.width)

    def _floor_depth(self, terrain: Terrain, eye: Array, rays: Array) -> Array:
        with np.errstate(divide="ignore"):
            depth = -(eye[2] + terrain.config.depth) / rays[:, 2]
        return np.where(depth > 0, depth, np.inf)

    def _stone_depth(self, terrain: Terrain, eye: Array, rays: Array) -> Array:
        """Slab method, against the stones that any ray can reach."""
        near = (terrain.ends > eye[0] - self.config.reach) & (terrain.starts < eye[0] + 2 * self.config.reach)
        low, high = terrain.starts[near], terrain.ends[near]
        half = terrain.config.width / 2
        with np.errstate(divide="ignore"):
            inverse = 1.0 / rays
        # An axis-parallel ray gives infinities of the right signs here; 0 * inf can only arise for an eye
        # exactly in a face, where nan makes the comparison below false: a miss, as for any grazing ray.
        enter_x, leave_x = _slab(low - eye[0], high - eye[0], inverse[:, :1])
        enter_y, leave_y = _slab(-half - eye[1], half - eye[1], inverse[:, 1:2])
        enter_z, leave_z = _slab(-terrain.config.depth - eye[2], -eye[2], inverse[:, 2:])
        enter = np.maximum(np.maximum(enter_x, enter_y), enter_z)
        leave = np.minimum(np.minimum(leave_x, leave_y), leave_z)
        hit = (enter <= leave) & (enter > 0)
        return np.where(hit, enter, np.inf).min(axis=1)


def _slab(low: Array, high: Array, inverse: Array) -> tuple[Array, Array]:
    a, b = low * inverse, high * inverse
    return np.minimum(a, b), np.maximum(a, b)
