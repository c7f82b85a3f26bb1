"""Closed-form leg kinematics of the Laikago, all four legs at once, in the base frame.

Legs are in the order FR, FL, RR, RL; joints are abduction, hip, knee (rad). The lengths are those of
`laikago_toes_zup_lores.urdf`; a test holds these functions to the engine's own forward kinematics.
"""

from __future__ import annotations

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
THIGH, THIGH_ANGLE = np.hypot(0.20833, 0.1422), np.arctan2(0.1422, 0.20833)  # m, rad from straight down
SHANK, SHANK_ANGLE = np.hypot(0.25, 0.022), np.arctan2(0.022, 0.25)
FOOT_RADIUS = 0.03  # m


def foot_positions(joints: Array) -> Array:
    """Toe centres [4, 3] (m, base frame) for `joints` [4, 3] (rad)."""
    return HIPS + _abduct(_leg_plane(joints), SIDE * joints[:, 0])


def _leg_plane(joints: Array) -> Array:
    """Toe relative to its hip before abduction, [4, 3]."""
    thigh = joints[:, 1] + THIGH_ANGLE
    shank = joints[:, 1] + joints[:, 2] + SHANK_ANGLE
    x = -THIGH * np.sin(thigh) - SHANK * np.sin(shank)
    z = -THIGH * np.cos(thigh) - SHANK * np.cos(shank)
    return np.stack([x, SIDE * LATERAL, z], axis=1)


def _abduct(vectors: Array, angles: Array) -> Array:
    """Rotate `vectors` [4, 3] about the x axis."""
    c, s = np.cos(angles), np.sin(angles)
    x, y, z = vectors.T
    return np.stack([x, c * y - s * z, s * y + c * z], axis=1)


def jacobians(joints: Array) -> Array:
    """d(toe)/d(joints), [4, 3, 3], in the base frame."""
    roll = SIDE * joints[:, 0]
    thigh = joints[:, 1] + THIGH_ANGLE
    shank = joints[:, 1] + joints[:, 2] + SHANK_ANGLE
    zero = np.zeros(4)
    knee = np.stack([-SHANK * np.cos(shank), zero, SHANK * np.sin(shank)], axis=1)
    hip = knee + np.stack([-THIGH * np.cos(thigh), zero, THIGH * np.sin(thigh)], axis=1)
    foot = _abduct(_leg_plane(joints), roll)
    abduction = SIDE[:, None] * np.stack([zero, -foot[:, 2], foot[:, 1]], axis=1)
    return np.stack([abduction, _abduct(hip, roll), _abduct(knee, roll)], axis=2)


def joint_angles(feet: Array) -> Array:
    """Joints [4, 3] (rad, knees bent backwards) that put the toes at `feet` [4, 3] (m, base frame).

    A foot out of reach is moved to the nearest reachable point along its direction from the hip.
    """
    x, y, z = (feet - HIPS).T
    side = SIDE * LATERAL
    down = np.sqrt(np.maximum(y * y + z * z - LATERAL**2, 1e-9))
    roll = np.arctan2(z, y) - np.arctan2(-down, side)
    roll = (roll + np.pi) % (2 * np.pi) - np.pi
    cos_bend = (x * x + down * down - THIGH**2 - SHANK**2) / (2 * THIGH * SHANK)
    bend = -np.arccos(np.clip(cos_bend, -1.0, 1.0))
    thigh = np.arctan2(-x, down) - np.arctan2(SHANK * np.sin(bend), THIGH + SHANK * np.cos(bend))
    hip = thigh - THIGH_ANGLE
    knee = bend + THIGH_ANGLE - SHANK_ANGLE
    return np.stack([SIDE * roll, hip, knee], axis=1)
