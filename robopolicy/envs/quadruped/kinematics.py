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
LEG_PLANE = SIDE * LATERAL
THIGH, THIGH_ANGLE = np.hypot(0.20833, 0.1422), np.arctan2(0.1422, 0.20833)  # m, rad from straight down
SHANK, SHANK_ANGLE = np.hypot(0.25, 0.022), np.arctan2(0.022, 0.25)
FOOT_RADIUS = 0.03  # m


def _columns(x: Array, y: Array, z: Array) -> Array:
    """Three vectors [4] as one array [4, 3]; np.stack takes three times as long, and this is called often."""
    out = np.empty((4, 3))
    out[:, 0], out[:, 1], out[:, 2] = x, y, z
    return out


def foot_positions(joints: Array) -> Array:
    """Toe centres [4, 3] (m, base frame) for `joints` [4, 3] (rad)."""
    return HIPS + _abduct(_leg_plane(joints), SIDE * joints[:, 0])


def _leg_plane(joints: Array) -> Array:
    """Toe relative to its hip before abduction, [4, 3]."""
    thigh = joints[:, 1] + THIGH_ANGLE
    shank = joints[:, 1] + joints[:, 2] + SHANK_ANGLE
    x = -THIGH * np.sin(thigh) - SHANK * np.sin(shank)
    z = -THIGH * np.cos(thigh) - SHANK * np.cos(shank)
    return _columns(x, LEG_PLANE, z)


def _abduct(vectors: Array, angles: Array) -> Array:
    """Rotate `vectors` [4, 3] about the x axis."""
    c, s = np.cos(angles), np.sin(angles)
    x, y, z = vectors.T
    return _columns(x, c * y - s * z, s * y + c * z)


def jacobians(joints: Array) -> Array:
    """d(toe)/d(joints), [4, 3, 3], in the base frame."""
    roll = SIDE * joints[:, 0]
    thigh = joints[:, 1] + THIGH_ANGLE
    shank = joints[:, 1] + joints[:, 2] + SHANK_ANGLE
    zero = np.zeros(4)
    knee = _columns(-SHANK * np.cos(shank), zero, SHANK * np.sin(shank))
    hip = knee + _columns(-THIGH * np.cos(thigh), zero, THIGH * np.sin(thigh))
    foot = _abduct(_leg_plane(joints), roll)
    out = np.empty((4, 3, 3))
    out[:, :, 0] = _columns(zero, -SIDE * foot[:, 2], SIDE * foot[:, 1])
    out[:, :, 1] = _abduct(hip, roll)
    out[:, :, 2] = _abduct(knee, roll)
    return out


def joint_angles(feet: Array) -> Array:
    """Joints [4, 3] (rad, knees bent backwards) that put the toes at `feet` [4, 3] (m, base frame).

    A foot out of reach is moved to the nearest reachable point along its direction from the hip.
    """
    x, y, z = (feet - HIPS).T
    down = np.sqrt(np.maximum(y * y + z * z - LATERAL**2, 1e-9))
    roll = np.arctan2(z, y) - np.arctan2(-down, LEG_PLANE)
    roll = (roll + np.pi) % (2 * np.pi) - np.pi
    cos_bend = (x * x + down * down - THIGH**2 - SHANK**2) / (2 * THIGH * SHANK)
    bend = -np.arccos(np.clip(cos_bend, -1.0, 1.0))
    thigh = np.arctan2(-x, down) - np.arctan2(SHANK * np.sin(bend), THIGH + SHANK * np.cos(bend))
    hip = thigh - THIGH_ANGLE
    knee = bend + THIGH_ANGLE - SHANK_ANGLE
    return _columns(SIDE * roll, hip, knee)
