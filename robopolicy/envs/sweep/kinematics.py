"""Kinematics of a KUKA iiwa with a spatula: forward, Jacobian, and an inverse that neither drifts nor flips.

The chain is that of `assets/iiwa/iiwa.xml`; a test compares it with the engines. Frames are 4 x 4 homogeneous
transforms in the arm's base frame, x ahead and z up (m); joints are seven angles (rad).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics.base import Array

JOINTS = 7
LIMIT = np.array(
    [2.96705972839, 2.09439510239, 2.96705972839, 2.09439510239, 2.96705972839, 2.09439510239, 3.05432619099]
)
MARGIN = 0.1  # rad, for the overshoot of a motor
LOWER, UPPER = MARGIN - LIMIT, LIMIT - MARGIN
UPPER[3] = -0.1  # the elbow bends one way: a straight arm may snap through to the other
REST = np.array([0.0, 0.5, 0.0, -1.6, 0.0, 1.04, 0.0])  # elbow up, wrist down

FLANGE = 0.045  # m, from the last joint to the tool
HANDLE = 0.15  # m, from there down to the lower face of the spatula's lip
OFFSET = 0.08  # m, from that axis ahead to the spatula's back, so that wrists are apart when lips meet
WRIST = FLANGE + 0.081  # m, from the flange up to the wrist's middle
_HALF = np.pi / 2
_ORIGINS = (
    ((0.0, 0.0, 0.0), (0.0, 0.0, 0.1575)),
    ((_HALF, 0.0, np.pi), (0.0, 0.0, 0.2025)),
    ((_HALF, 0.0, np.pi), (0.0, 0.2045, 0.0)),
    ((_HALF, 0.0, 0.0), (0.0, 0.0, 0.2155)),
    ((-_HALF, np.pi, 0.0), (0.0, 0.1845, 0.0)),
    ((_HALF, 0.0, 0.0), (0.0, 0.0, 0.2155)),
    ((-_HALF, np.pi, 0.0), (0.0, 0.081, 0.0)),
)

STEPS = 60
CLOSE = 1e-5  # m and rad
DAMPING = 0.02
LARGEST_STEP = 0.2  # rad a joint and iteration, so that an arm never jumps to another branch


def frame(rpy: tuple[float, float, float], xyz: tuple[float, float, float]) -> Array:
    """The transform of a URDF origin."""
    out = np.eye(4)
    out[:3, :3] = Rotation.from_euler("xyz", rpy).as_matrix()
    out[:3, 3] = xyz
    return out


_LINKS = np.stack([frame(*origin) for origin in _ORIGINS])
# The lip looks ahead and its handle up while the last joint's axis points down.
TOOL = frame((0.0, np.pi, 0.0), (-OFFSET, 0.0, FLANGE + HANDLE))


class Solution(NamedTuple):
    """Joints [7] (rad) of the nearest pose in reach, and whether it is the target."""

    joints: Array
    reached: bool


def line(joints: Array) -> Array:
    """The arm from its base over its seven joints to the tool, [9, 3] (m)."""
    pose, points = np.eye(4), [np.zeros(3)]
    for link, angle in zip(_LINKS, joints, strict=True):
        pose = pose @ link
        points.append(pose[:3, 3])
        pose = pose @ frame((0.0, 0.0, angle), (0.0, 0.0, 0.0))
    return np.stack([*points, (pose @ TOOL)[:3, 3]])


def inverse(target: Array, start: Array, farthest: float = np.inf, tolerance: float = 1e-3) -> Solution:
    """Joints that put the tool at `target` [4, 4], near `start` [7], within limits and drawn to `REST`.

    Damped least squares; the motion that leaves the tool in place pulls towards `REST`, so that the joints
    for a pose do not depend for long on the path to it. A pose is out of reach if the error stays above
    `tolerance` (m and rad), or if some joint would move by more than `farthest` (rad), to another branch.
    """
    joints, error = _inverse(np.asarray(target, float), np.asarray(start, float))
    near = np.abs(joints - start).max() <= farthest
    return Solution(joints, bool(error <= tolerance and near))


@numba.njit(cache=True)
def forward(joints: Array) -> tuple[Array, Array]:
    """The tool's pose [4, 4], and its Jacobian [6, 7].

    The Jacobian is the linear (m/s) and angular (rad/s) velocity of the tool for each joint velocity.
    """
    pose = np.eye(4)
    axes, origins = np.empty((7, 3)), np.empty((7, 3))
    turn = np.eye(4)
    for j in range(7):
        pose = pose @ _LINKS[j]
        axes[j], origins[j] = pose[:3, 2], pose[:3, 3]
        c, s = np.cos(joints[j]), np.sin(joints[j])
        turn[0, 0], turn[0, 1], turn[1, 0], turn[1, 1] = c, -s, s, c
        pose = pose @ turn
    pose = pose @ TOOL
    out = np.empty((6, 7))
    for j in range(7):
        out[:3, j] = np.cross(axes[j], pose[:3, 3] - origins[j])
        out[3:, j] = axes[j]
    return pose, out


@numba.njit(cache=True)
def _error(target: Array, pose: Array) -> Array:
    """The translation (m) and the rotation vector (rad) from `pose` to `target`, [6]."""
    out = np.empty(6)
    out[:3] = target[:3, 3] - pose[:3, 3]
    turn = np.ascontiguousarray(target[:3, :3]) @ np.ascontiguousarray(pose[:3, :3].T)
    axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
    sine, cosine = np.sqrt(np.sum(axis**2)) / 2, (turn[0, 0] + turn[1, 1] + turn[2, 2] - 1) / 2
    angle = np.arctan2(sine, cosine)
    if sine > 1e-9:
        out[3:] = axis * angle / (2 * sine)
    elif cosine > 0:
        out[3:] = axis / 2
    else:  # half a turn: its axis is the column of turn + 1 that is longest
        both = turn + np.eye(3)
        longest = np.argmax(np.diag(both))
        out[3:] = angle * both[:, longest] / np.sqrt(np.sum(both[:, longest] ** 2))
    return out


@numba.njit(cache=True)
def _inverse(target: Array, start: Array) -> tuple[Array, float]:
    joints = start.copy()
    pose, moves = forward(joints)
    error = _error(target, pose)
    size = np.sqrt(np.sum(error**2))
    best, best_size = joints, size
    for _ in range(STEPS):
        square = moves @ moves.T + DAMPING**2 * min(1.0, size) * np.eye(6)
        step = moves.T @ np.linalg.solve(square, error)
        spare = 0.1 * (REST - joints)
        step = step + spare - moves.T @ np.linalg.solve(square, moves @ spare)
        largest = np.abs(step).max()
        if largest > LARGEST_STEP:
            step *= LARGEST_STEP / largest
        joints = np.minimum(np.maximum(joints + step, LOWER), UPPER)
        pose, moves = forward(joints)
        error = _error(target, pose)
        size = np.sqrt(np.sum(error**2))
        if size < best_size or size < CLOSE:
            best, best_size = joints, size
    return best, best_size
