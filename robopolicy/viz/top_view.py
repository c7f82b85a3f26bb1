"""A map of the ground from above, with the robot over it."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from robopolicy.viz.overlay import FOOTHOLD, Picture

ROBOT = (0, 114, 178)  # blue


def top_view(
    ground: NDArray[np.float32], outline: NDArray[np.float64], marks: NDArray[np.float64], scale: int
) -> Picture:
    """`ground` [H, W] as a picture [H * scale, W * scale, 3].

    Args:
      ground: what is remembered of each place: 0 for level ground, light grey, and 1 for a gap, black.
      outline: corners [N, 2] of the robot (x, y, pixels of `ground`), none or more.
      marks: footholds [M, 2], drawn as rings.
      scale: side of a pixel of `ground` in the picture.
    """
    grey = np.clip(210.0 * (1.0 - ground), 0, 255)[..., None]
    picture: Any = np.kron(np.repeat(grey, 3, axis=2), np.ones((scale, scale, 1))).astype(np.uint8)
    if len(outline):
        cv2.polylines(picture, [np.round(scale * outline).astype(np.int32)], True, ROBOT, 2, cv2.LINE_AA)
    for x, y in np.round(scale * marks).astype(int).tolist():
        cv2.circle(picture, (x, y), 2 * scale, FOOTHOLD, 2, cv2.LINE_AA)
    return picture
