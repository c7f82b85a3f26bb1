"""The state of a floating base and its joints, from coordinates as MuJoCo has them."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array, BodyState


@numba.njit(cache=True)
def body_state(qpos: Array, qvel: Array, order: NDArray[np.int64]) -> BodyState:
    """The state of a floating base and its joints, from MuJoCo's positions and velocities.

    order: [J], the place of each joint behind the base.
    """
    w, x, y, z = qpos[3:7]
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    angular = np.empty(3)  # MuJoCo gives a floating body's angular velocity in body axes
    for axis in range(3):
        angular[axis] = (rotation[axis] * qvel[3:6]).sum()
    return BodyState(qpos[:3].copy(), rotation, qvel[:3].copy(), angular, qpos[7:][order], qvel[6:][order])
