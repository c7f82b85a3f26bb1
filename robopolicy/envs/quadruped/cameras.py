"""Two depth cameras on a levelled mount, by ray casting against the stones."""

from __future__ import annotations

from collections.abc import Iterable

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.kinematics import LIMB_RADIUS
from robopolicy.control.robot import CameraConfig, Robot
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.physics.base import Array, Box
from robopolicy.envs.quadruped.terrain import Terrain

PLACES = ("front", "belly")  # of cameras
NO_BALLS = np.empty((0, 3))


def cameras_of(places: Iterable[str], robot: Robot) -> dict[str, CameraConfig]:
    """The cameras of `robot` at `places`, front or belly, by the name of their images."""
    return {f"{place}_depth": getattr(robot, place) for place in PLACES if place in places}


CAMERAS = cameras_of(PLACES, LAIKAGO)


class DepthCamera:
    """Measures depth along the optical axis, as depth cameras do, not distance along the ray."""

    def __init__(self, config: CameraConfig) -> None:
        self.config = config
        tan_x, tan_y = np.tan(np.radians(config.fields) / 2)
        right = (np.arange(config.width) + 0.5) / config.width * 2 - 1
        down = (np.arange(config.height) + 0.5) / config.height * 2 - 1
        v, u = np.meshgrid(down * tan_y, right * tan_x, indexing="ij")
        tilt = np.radians(config.tilt)
        axis = np.array([np.sin(tilt), 0.0, -np.cos(tilt)])
        up = np.array([np.cos(tilt), 0.0, np.sin(tilt)])  # up in the image is ahead of the robot
        rays = axis - v[..., None] * up + u[..., None] * np.array([0.0, -1.0, 0.0])
        self.rays = rays.reshape(-1, 3)  # yaw frame, of unit depth
        # Largest distance along x (m) of a point that a ray can hit.
        self._farthest = config.reach * float(np.hypot(rays[..., 0], rays[..., 1]).max())

    def pose(self, base: Array, yaw: float) -> tuple[Array, Array]:
        """World position [3] and rays [height * width, 3] of unit depth, for a base at `base` [3] (m)."""
        c, s = np.cos(yaw), np.sin(yaw)
        turn = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        return base + np.array(self.config.position) @ turn, self.rays @ turn

    def image(self, ground: Ground, base: Array, yaw: float, balls: Array = NO_BALLS) -> NDArray[np.float32]:
        """Depth image [height, width] (m) of `ground`, and of `balls` [N, 3] (m, world) of the legs."""
        config = self.config
        eye, rays = self.pose(base, yaw)
        depth = _depths(eye, rays, ground.near(eye[0], self._farthest), config.reach)
        if len(balls):
            depth = np.minimum(depth, _ball_depths(eye, rays, balls, config.reach))
        return depth.reshape(config.height, config.width)

    def level_image(self, height: float) -> NDArray[np.float32]:
        """Depth image [height, width] (m) of level ground without gaps, the base `height` metres above it."""
        config = self.config
        eye = height + config.position[2]
        with np.errstate(divide="ignore"):
            depth = np.where(self.rays[:, 2] < 0, -eye / self.rays[:, 2], np.inf)
        return np.minimum(depth, config.reach).astype(np.float32).reshape(config.height, config.width)


class Ground:
    """The visible boxes of a terrain: its stones and the floor of the gaps."""

    def __init__(self, terrain: Terrain) -> None:
        boxes = [*terrain.stones(), terrain.floor()]
        self._rows = np.array([_row(box) for box in boxes])
        reach = np.abs(self._rows[:, 3] * self._rows[:, 6]) + np.abs(self._rows[:, 4] * self._rows[:, 7])
        self._low, self._high = self._rows[:, 0] - reach, self._rows[:, 0] + reach

    def near(self, x: float, distance: float) -> Array:
        """The boxes [B, 8] within `distance` (m) of `x` along the row of stones."""
        return self._rows[(self._high > x - distance) & (self._low < x + distance)]


def _row(box: Box) -> tuple[float, ...]:
    return (*box.center, *box.half, np.cos(box.yaw), np.sin(box.yaw))


@numba.njit(cache=True)
def _depths(eye: Array, rays: Array, boxes: Array, reach: float) -> NDArray[np.float32]:
    """Depth [N] at which rays from `eye` [3] along `rays` [N, 3] enter a box, at most `reach` (slab method).

    boxes: centre, half extents, cosine and sine of the yaw, [B, 8]. A ray that starts inside a box misses it.
    """
    starts = np.empty((len(boxes), 3))
    for b, box in enumerate(boxes):
        x, y = eye[0] - box[0], eye[1] - box[1]
        starts[b, 0], starts[b, 1] = box[6] * x + box[7] * y, box[6] * y - box[7] * x
        starts[b, 2] = eye[2] - box[2]
    depths = np.empty(len(rays), np.float32)
    for i in range(len(rays)):
        nearest = reach
        x, y = rays[i, 0], rays[i, 1]
        inverse_x, inverse_y, inverse_z = _inverse(x), _inverse(y), _inverse(rays[i, 2])
        for b, box in enumerate(boxes):
            enter, leave = _slab(starts[b, 2], inverse_z, box[5])
            if box[7] == 0.0:
                enter_x, leave_x = _slab(starts[b, 0], inverse_x, box[3])
                enter_y, leave_y = _slab(starts[b, 1], inverse_y, box[4])
            else:
                enter_x, leave_x = _slab(starts[b, 0], _inverse(box[6] * x + box[7] * y), box[3])
                enter_y, leave_y = _slab(starts[b, 1], _inverse(box[6] * y - box[7] * x), box[4])
            enter = max(enter, enter_x, enter_y)
            if 0.0 < enter < min(leave, leave_x, leave_y) and enter < nearest:
                nearest = enter
        depths[i] = nearest
    return depths


@numba.njit(cache=True)
def _ball_depths(eye: Array, rays: Array, balls: Array, reach: float) -> NDArray[np.float32]:
    """Depth [N] at which rays from `eye` [3] along `rays` [N, 3] enter a ball [B, 3], at most `reach`.

    A ray that starts inside a ball misses it.
    """
    depths = np.full(len(rays), reach, np.float32)
    for ball in balls:
        x, y, z = eye[0] - ball[0], eye[1] - ball[1], eye[2] - ball[2]
        outside = x * x + y * y + z * z - LIMB_RADIUS**2
        if outside <= 0.0:
            continue
        for i in range(len(rays)):
            ray = rays[i]
            square = ray[0] * ray[0] + ray[1] * ray[1] + ray[2] * ray[2]
            towards = x * ray[0] + y * ray[1] + z * ray[2]
            root = towards * towards - square * outside
            if root > 0.0 > towards:
                depths[i] = min(depths[i], (-towards - np.sqrt(root)) / square)
    return depths


@numba.njit(cache=True)
def _inverse(component: float) -> float:
    # A ray parallel to a face never enters its slab, or is always inside: a huge number avoids NaN.
    return 1.0 / component if abs(component) > 1e-12 else 1e12


@numba.njit(cache=True)
def _slab(start: float, inverse: float, half: float) -> tuple[float, float]:
    one, other = (-half - start) * inverse, (half - start) * inverse
    return min(one, other), max(one, other)
