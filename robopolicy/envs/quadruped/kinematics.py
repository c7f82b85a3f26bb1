"""Closed-form leg kinematics of the Laikago, all four legs at once, in the base frame.

Legs are in the order FR, FL, RR, RL; joints are abduction, hip, knee (rad). The lengths are those of
`laikago_toes_zup_lores.urdf`. A test compares these functions with the engine's forward kinematics.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from robopolicy.envs.physics.base import Array

LEGS = ("FR", "FL", "RR", "RL")
SIDE = np.array([-1.0, 1.0, -1.0, 1.0])  # +1 left
HIPS = np.array(  # abduction joints in the base frame, m
    [
        [0.199095, -0.0817145, -0.03],
        [0.199095, 0.0817145, -0.03],
        [-0.238195, -0.0817145, -0.03],
        [-0.238195, 0.0817145, -0.03],
    ]
)
LATERAL = np.array([0.053565, 0.055855, 0.053565, 0.055855]) - 0.02069  # abduction axis to leg plane, m
LEG_PLANE = SIDE * LATERAL
THIGH, THIGH_ANGLE = np.hypot(0.20833, 0.1422), np.arctan2(0.1422, 0.20833)  # m, rad from straight down
SHANK, SHANK_ANGLE = np.hypot(0.25, 0.022), np.arctan2(0.022, 0.25)
FOOT_RADIUS = 0.03  # m
# What cameras see of the legs: balls along thighs and shanks, 6 cm apart.
LIMB_RADIUS, PARTS = 0.035, 4
BALLS = 2 * 4 * PARTS


@numba.njit(cache=True)
def foot_positions(joints: Array) -> Array:
    """Toe centres [4, 3] (m, base frame) for `joints` [4, 3] (rad)."""
    feet = np.empty((4, 3))
    for leg in range(4):
        x, y, z, _, _ = _leg(joints, leg)
        feet[leg, 0], feet[leg, 1], feet[leg, 2] = HIPS[leg, 0] + x, HIPS[leg, 1] + y, HIPS[leg, 2] + z
    return feet


def leg_lines(joints: Array) -> Array:
    """Four points on each leg: hip, leg plane, knee and toe, [4, 4, 3] (m, base frame)."""
    roll = SIDE * joints[:, 0]
    thigh = joints[:, 1] + THIGH_ANGLE
    across = np.stack([np.zeros(4), np.cos(roll), np.sin(roll)], axis=1)
    down = np.stack([np.zeros(4), np.sin(roll), -np.cos(roll)], axis=1)
    plane = HIPS + LEG_PLANE[:, None] * across
    knees = plane + THIGH * np.cos(thigh)[:, None] * down
    knees[:, 0] -= THIGH * np.sin(thigh)
    return np.stack([HIPS, plane, knees, foot_positions(joints)], axis=1)


def leg_balls(joints: Array) -> Array:
    """Centres [BALLS, 3] (m, base frame) of the balls of `LIMB_RADIUS` that cameras see of the legs."""
    return np.concatenate(limbs(*np.moveaxis(leg_lines(joints), 1, 0)[1:])).reshape(BALLS, 3)


def limbs(planes: Any, knees: Any, toes: Any) -> tuple[Any, Any]:
    """Places [PARTS, 4, 3] along the thighs and along the shanks, from points [4, 3] of all legs."""
    parts = np.arange(1, PARTS + 1)[:, None, None] / PARTS
    return planes + parts * (knees - planes), knees + parts * (toes - knees)


@numba.njit(cache=True)
def jacobians(joints: Array) -> Array:
    """d(toe)/d(joints), [4, 3, 3], in the base frame."""
    out = np.zeros((4, 3, 3))
    for leg in range(4):
        _, y, z, thigh, shank = _leg(joints, leg)
        roll = SIDE[leg] * joints[leg, 0]
        out[leg, 1, 0], out[leg, 2, 0] = -SIDE[leg] * z, SIDE[leg] * y
        knee_x, knee_z = -SHANK * np.cos(shank), SHANK * np.sin(shank)
        hip_x, hip_z = knee_x - THIGH * np.cos(thigh), knee_z + THIGH * np.sin(thigh)
        for joint, ahead, up in ((1, hip_x, hip_z), (2, knee_x, knee_z)):
            out[leg, 0, joint] = ahead
            out[leg, 1, joint] = -np.sin(roll) * up
            out[leg, 2, joint] = np.cos(roll) * up
    return out


@numba.njit(cache=True)
def joint_angles(feet: Array) -> Array:
    """Joints [4, 3] (rad, knees bent backwards) that put the toes at `feet` [4, 3] (m, base frame).

    For a foot out of reach they are those of the nearest reachable point in its direction from the hip.
    """
    joints = np.empty((4, 3))
    for leg in range(4):
        x, y, z = feet[leg, 0] - HIPS[leg, 0], feet[leg, 1] - HIPS[leg, 1], feet[leg, 2] - HIPS[leg, 2]
        down = np.sqrt(max(y * y + z * z - LATERAL[leg] ** 2, 1e-9))
        roll = np.arctan2(z, y) - np.arctan2(-down, LEG_PLANE[leg])
        roll = (roll + np.pi) % (2 * np.pi) - np.pi
        cos_bend = (x * x + down * down - THIGH**2 - SHANK**2) / (2 * THIGH * SHANK)
        bend = -np.arccos(min(max(cos_bend, -1.0), 1.0))
        thigh = np.arctan2(-x, down) - np.arctan2(SHANK * np.sin(bend), THIGH + SHANK * np.cos(bend))
        joints[leg, 0] = SIDE[leg] * roll
        joints[leg, 1] = thigh - THIGH_ANGLE
        joints[leg, 2] = bend + THIGH_ANGLE - SHANK_ANGLE
    return joints


@numba.njit(cache=True)
def _leg(joints: Array, leg: int) -> tuple[float, float, float, float, float]:
    """Toe relative to its hip (m), and the angles of thigh and shank from straight down (rad)."""
    roll = SIDE[leg] * joints[leg, 0]
    thigh = joints[leg, 1] + THIGH_ANGLE
    shank = joints[leg, 1] + joints[leg, 2] + SHANK_ANGLE
    x = -THIGH * np.sin(thigh) - SHANK * np.sin(shank)
    down = -THIGH * np.cos(thigh) - SHANK * np.cos(shank)
    c, s = np.cos(roll), np.sin(roll)
    return x, c * LEG_PLANE[leg] - s * down, s * LEG_PLANE[leg] + c * down, thigh, shank
