"""The state of the robot in the frames that controllers and observations use."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from robopolicy.control.kinematics import Legs, foot_positions
from robopolicy.control.state import Array, BodyState


class Reading(NamedTuple):
    """The robot at one moment. The yaw frame has x ahead and z up.

    position [3] and feet_world [4, 3] (m, world); joints and rates [4, 3] (rad, rad/s); attitude [3]: roll,
    pitch, yaw (rad); to_yaw and base_to_yaw [3, 3]: rotations from world and base to the yaw frame; velocity
    [3] (m/s) and angular_velocity [3] (rad/s), yaw frame; feet and hips [4, 3] (m) relative to the base, yaw
    frame; tilt: the larger of |roll| and |pitch| (rad), NaN if either is; lowest_foot: height of the lowest
    toe's centre (m, world).
    """

    position: Array
    joints: Array
    rates: Array
    attitude: Array
    to_yaw: Array
    base_to_yaw: Array
    velocity: Array
    angular_velocity: Array
    feet: Array
    hips: Array
    feet_world: Array
    tilt: float
    lowest_foot: float


@numba.njit(cache=True)
def turned(rotation: Array, vectors: Array) -> Array:
    """rotation @ v for every row v of `vectors` [N, 3]."""
    out = np.empty_like(vectors)
    for i in range(len(vectors)):
        for a in range(3):
            row, v = rotation[a], vectors[i]
            out[i, a] = row[0] * v[0] + row[1] * v[1] + row[2] * v[2]
    return out


@numba.njit(cache=True)
def read(state: BodyState, legs: Legs) -> Reading:
    """The reading of `state`."""
    rotation, joints = state.rotation, state.joint_positions.reshape(4, 3)
    attitude = np.array(
        [
            np.arctan2(rotation[2, 1], rotation[2, 2]),
            -np.arcsin(np.minimum(np.maximum(rotation[2, 0], -1.0), 1.0)),  # min and max may drop a NaN
            np.arctan2(rotation[1, 0], rotation[0, 0]),
        ]
    )
    c, s = np.cos(attitude[2]), np.sin(attitude[2])
    to_yaw = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
    base_to_yaw = turned(to_yaw, rotation.T.copy()).T.copy()
    velocities = np.empty((2, 3))
    velocities[0], velocities[1] = state.linear_velocity, state.angular_velocity
    velocities = turned(to_yaw, velocities)
    feet = turned(base_to_yaw, foot_positions(legs, joints))
    feet_world = state.position + turned(to_yaw.T, feet)
    return Reading(
        state.position,
        joints,
        state.joint_velocities.reshape(4, 3),
        attitude,
        to_yaw,
        base_to_yaw,
        velocities[0],
        velocities[1],
        feet,
        turned(base_to_yaw, legs.hips),
        feet_world,
        np.maximum(abs(attitude[0]), abs(attitude[1])),
        feet_world[:, 2].min(),
    )
