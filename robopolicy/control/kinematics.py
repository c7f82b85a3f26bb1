"""Closed-form kinematics of four legs of three joints at once, in the base frame.

Legs are in the order FR, FL, RR, RL; joints are abduction, hip, knee (rad). A test compares these functions
with the engines' forward kinematics.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from robopolicy.control.state import Array

LEGS = ("FR", "FL", "RR", "RL")
# What cameras see of the legs: balls along thighs and shanks, a quarter of a limb apart.
LIMB_RADIUS, PARTS = 0.035, 4
BALLS = 2 * 4 * PARTS


class Legs(NamedTuple):
    """The lengths of four legs.

    Attributes:
      hips: [4, 3] (m), the abduction joints in the base frame.
      turns: [4], 1 or -1, the direction of the abduction joints about x ahead.
      lateral: [4] (m), distance from the abduction axis to the leg's plane; plane: [4] (m), the same with its
        sign, positive to the left.
      thigh, shank: lengths (m); thigh_angle, shank_angle: rad from straight down, at joints of 0, positive
        backwards.
      foot_radius: m.
    """

    hips: Array
    turns: Array
    lateral: Array
    plane: Array
    thigh: float
    thigh_angle: float
    shank: float
    shank_angle: float
    foot_radius: float


@numba.njit(cache=True)
def foot_positions(legs: Legs, joints: Array) -> Array:
    """Toe centres [4, 3] (m, base frame) for `joints` [4, 3] (rad)."""
    feet = np.empty((4, 3))
    for leg in range(4):
        x, y, z, _, _ = _leg(legs, joints, leg)
        hip = legs.hips[leg]
        feet[leg, 0], feet[leg, 1], feet[leg, 2] = hip[0] + x, hip[1] + y, hip[2] + z
    return feet


def leg_lines(legs: Legs, joints: Array) -> Array:
    """Four points on each leg: hip, leg plane, knee and toe, [4, 4, 3] (m, base frame)."""
    roll = legs.turns * joints[:, 0]
    thigh = joints[:, 1] + legs.thigh_angle
    across = np.stack([np.zeros(4), np.cos(roll), np.sin(roll)], axis=1)
    down = np.stack([np.zeros(4), np.sin(roll), -np.cos(roll)], axis=1)
    plane = legs.hips + legs.plane[:, None] * across
    knees = plane + legs.thigh * np.cos(thigh)[:, None] * down
    knees[:, 0] -= legs.thigh * np.sin(thigh)
    return np.stack([legs.hips, plane, knees, foot_positions(legs, joints)], axis=1)


def leg_balls(legs: Legs, joints: Array) -> Array:
    """Centres [BALLS, 3] (m, base frame) of the balls of `LIMB_RADIUS` that cameras see of the legs."""
    return np.concatenate(limbs(*np.moveaxis(leg_lines(legs, joints), 1, 0)[1:])).reshape(BALLS, 3)


def limbs(planes: Any, knees: Any, toes: Any) -> tuple[Any, Any]:
    """Places [PARTS, 4, 3] along the thighs and along the shanks, from points [4, 3] of all legs."""
    parts = np.arange(1, PARTS + 1)[:, None, None] / PARTS
    return planes + parts * (knees - planes), knees + parts * (toes - knees)


@numba.njit(cache=True)
def jacobians(legs: Legs, joints: Array) -> Array:
    """d(toe)/d(joints), [4, 3, 3], in the base frame."""
    out = np.zeros((4, 3, 3))
    for leg in range(4):
        _, y, z, thigh, shank = _leg(legs, joints, leg)
        roll = legs.turns[leg] * joints[leg, 0]
        out[leg, 1, 0], out[leg, 2, 0] = -legs.turns[leg] * z, legs.turns[leg] * y
        knee_x, knee_z = -legs.shank * np.cos(shank), legs.shank * np.sin(shank)
        hip_x, hip_z = knee_x - legs.thigh * np.cos(thigh), knee_z + legs.thigh * np.sin(thigh)
        for joint, ahead, up in ((1, hip_x, hip_z), (2, knee_x, knee_z)):
            out[leg, 0, joint] = ahead
            out[leg, 1, joint] = -np.sin(roll) * up
            out[leg, 2, joint] = np.cos(roll) * up
    return out


@numba.njit(cache=True)
def joint_angles(legs: Legs, feet: Array) -> Array:
    """Joints [4, 3] (rad, knees bent backwards) that put the toes at `feet` [4, 3] (m, base frame).

    For a foot out of reach they are those of the nearest reachable point in its direction from the hip.
    """
    joints = np.empty((4, 3))
    for leg in range(4):
        hip = legs.hips[leg]
        x, y, z = feet[leg, 0] - hip[0], feet[leg, 1] - hip[1], feet[leg, 2] - hip[2]
        down = np.sqrt(max(y * y + z * z - legs.lateral[leg] ** 2, 1e-9))
        roll = np.arctan2(z, y) - np.arctan2(-down, legs.plane[leg])
        roll = (roll + np.pi) % (2 * np.pi) - np.pi
        cos_bend = (x * x + down * down - legs.thigh**2 - legs.shank**2) / (2 * legs.thigh * legs.shank)
        bend = -np.arccos(min(max(cos_bend, -1.0), 1.0))
        thigh = np.arctan2(-x, down) - np.arctan2(
            legs.shank * np.sin(bend), legs.thigh + legs.shank * np.cos(bend)
        )
        joints[leg, 0] = legs.turns[leg] * roll
        joints[leg, 1] = thigh - legs.thigh_angle
        joints[leg, 2] = bend + legs.thigh_angle - legs.shank_angle
    return joints


@numba.njit(cache=True)
def _leg(legs: Legs, joints: Array, leg: int) -> tuple[float, float, float, float, float]:
    """Toe relative to its hip (m), and the angles of thigh and shank from straight down (rad)."""
    roll = legs.turns[leg] * joints[leg, 0]
    thigh = joints[leg, 1] + legs.thigh_angle
    shank = joints[leg, 1] + joints[leg, 2] + legs.shank_angle
    x = -legs.thigh * np.sin(thigh) - legs.shank * np.sin(shank)
    down = -legs.thigh * np.cos(thigh) - legs.shank * np.cos(shank)
    c, s = np.cos(roll), np.sin(roll)
    return x, c * legs.plane[leg] - s * down, s * legs.plane[leg] + c * down, thigh, shank
