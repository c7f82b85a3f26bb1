"""The mirror images of demonstrations of the sweep.

Arms, camera, table and bowls are symmetric about the plane y = 0, so the mirror image of a demonstration is a
demonstration, too. Only shading and the arms' elbows in the images differ from an exact mirror image.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

# Places change sign along y; turns are axial and change sign along the other two axes.
_POSE = np.array([1, -1, 1, 1, -1, 1, -1], np.float32)  # x, y, z, then the quaternion w, x, y, z
_ACTION = np.array([1, -1, 1, -1, 1, -1], np.float32)  # move x, y, z, turn x, y, z


def mirrored_images(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images [..., S, S, 3], left and right exchanged."""
    mirrored = np.empty(images.shape, images.dtype)
    for image, target in zip(*(a.reshape(-1, *a.shape[-3:]) for a in (images, mirrored)), strict=True):
        cv2.flip(image, 1, dst=target)  # a fifth of the time of NumPy's reversed copy
    return mirrored


def mirrored_poses(poses: NDArray[Any]) -> NDArray[Any]:
    """Poses [..., 14] of the other arm, each in the mirror."""
    return _swapped(poses, _POSE)


def mirrored_actions(actions: NDArray[Any]) -> NDArray[Any]:
    """Actions [..., 12] for the other arm, each in the mirror."""
    return _swapped(actions, _ACTION)


def _swapped(rows: NDArray[Any], signs: NDArray[np.float32]) -> NDArray[Any]:
    half = len(signs)
    return np.concatenate([signs * rows[..., half:], signs * rows[..., :half]], axis=-1).astype(rows.dtype)
