"""The depth cameras in JAX: rays against the stones, as `envs.quadruped.cameras` casts them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from robopolicy.control.kinematics import LIMB_RADIUS
from robopolicy.control.robot import CameraConfig
from robopolicy.envs.batched.dynamics import Array

STEEP = 1e-12  # component of a ray below which it is parallel to a face


def image(
    config: CameraConfig,
    count: int,
    tilt: Array,
    eye: Array,
    yaw: Array,
    stones: Array,
    floor: Array,
    balls: Array,
) -> Array:
    """Depth [height, width] (m) from `eye` [3] (m, world), with the mount turned by `yaw` (rad).

    count: the largest number of stones in view. tilt: of the optical axis from straight down (rad).
    stones: [B, 8] and floor: [8], boxes as rows of centre, half extents (m), and cosine and sine of the yaw.
    balls: [L, 3] (m, world), of the legs.
    """
    right, down = np.tan(np.radians(config.fields) / 2)
    u = ((np.arange(config.width) + 0.5) / config.width * 2 - 1) * right
    v = ((np.arange(config.height) + 0.5) / config.height * 2 - 1) * down
    sine, cosine = jnp.sin(tilt), jnp.cos(tilt)
    ahead = (sine - v * cosine)[:, None] + 0 * u
    left = 0 * ahead - u
    up = (-cosine - v * sine)[:, None] + 0 * u
    c, s = jnp.cos(yaw), jnp.sin(yaw)
    rays = jnp.stack([c * ahead - s * left, s * ahead + c * left, up])  # [3, height, width]
    # Stones that matter lie ahead of a camera that looks ahead.
    middle = eye[0] + config.reach * float(np.sin(np.radians(config.tilt)))
    _, places = lax.top_k(stones[:, 3] - jnp.abs(stones[:, 0] - middle), min(count, len(stones)))
    boxes = jnp.concatenate([stones[places], floor[None]])

    def nearer(depth: Array, box: Array) -> tuple[Array, None]:
        return jnp.minimum(depth, _entered(eye, rays, box)), None

    depth, _ = lax.scan(nearer, jnp.full(rays.shape[1:], config.reach, rays.dtype), boxes)
    if not len(balls):
        return depth
    square = jnp.sum(rays**2, axis=0)

    def before(depth: Array, ball: Array) -> tuple[Array, None]:
        offset = eye - ball
        towards = jnp.tensordot(offset, rays, 1)
        outside = offset @ offset - LIMB_RADIUS**2
        root = towards**2 - square * outside
        entered = (-towards - jnp.sqrt(jnp.maximum(root, 0.0))) / square
        is_hit = (root > 0) & (towards < 0) & (outside > 0)
        return jnp.where(is_hit, jnp.minimum(depth, entered), depth), None

    depth, _ = lax.scan(before, depth, balls)
    return depth


def _entered(eye: Array, rays: Array, box: Array) -> Array:
    """Depth at which rays enter a box; infinite for a miss, and for an eye inside (slab method)."""
    c, s = box[6], box[7]
    x, y, z = eye - box[:3]
    starts = (c * x + s * y, c * y - s * x, z)
    ways = (c * rays[0] + s * rays[1], c * rays[1] - s * rays[0], rays[2])
    enter, leave = jnp.full(rays.shape[1:], -jnp.inf), jnp.full(rays.shape[1:], jnp.inf)
    for start, way, half in zip(starts, ways, box[3:6], strict=True):
        inverse = jnp.where(jnp.abs(way) > STEEP, 1 / jnp.where(way == 0, 1.0, way), 1 / STEEP)
        one, other = (-half - start) * inverse, (half - start) * inverse
        enter, leave = (
            jnp.maximum(enter, jnp.minimum(one, other)),
            jnp.minimum(leave, jnp.maximum(one, other)),
        )
    return jnp.where((enter > 0) & (enter < leave), enter, jnp.inf)
