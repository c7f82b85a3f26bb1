"""What is drawn over a picture of the robot: camera images, the attention's mask, captions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

MASKED_OUT = np.array([214.0, 39.0, 40.0])  # red
RED_SHARE = 0.65  # the rest is the depth below it, so that edges stay visible
MARGIN = 12  # pixels
BAND = 24  # height of a panel's title, pixels


def depth_picture(
    depth: NDArray[np.float32],
    level: NDArray[np.float32],
    kept: NDArray[np.bool_] | None,
    scale: int,
) -> Picture:
    """A depth image [H, W] (m) as a picture [H * scale, W * scale, 3].

    Grey is the ground at the level of `level` [H, W], darker is deeper, black from 0.3 m down. Where
    `kept` [H, W] is false, the pixel was masked out by the attention and is tinted red.
    """
    grey = 210.0 * np.clip(1.0 - (depth - level) / 0.3, 0.0, 1.2)
    colour = np.repeat(np.clip(grey, 0, 255)[..., None], 3, axis=2)
    if kept is not None:
        tinted = RED_SHARE * MASKED_OUT + (1 - RED_SHARE) * colour
        colour = np.where(kept[..., None], colour, tinted)
    return np.kron(colour, np.ones((scale, scale, 1))).astype(np.uint8)


def titled(picture: Picture, title: str) -> Picture:
    """`picture` under a dark band that holds `title`."""
    band = np.full((BAND, picture.shape[1], 3), 28, np.uint8)
    write(band, title, (6, BAND - 7), 0.45)
    return np.concatenate([band, picture])


def write(picture: Picture, text: str, at: tuple[int, int], size: float) -> None:
    """Write `text` in white, with its baseline starting at `at` (x, y) in pixels, into `picture`."""
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, (245, 245, 245), 1, cv2.LINE_AA)


def compose(frame: Picture, panels: Mapping[str, Picture], captions: Sequence[str]) -> Picture:
    """`frame` with titled `panels` in a row in its top left corner and `captions` in a band at its foot."""
    out = frame.copy()
    left = MARGIN
    for title, panel in panels.items():
        box = titled(panel, title)
        height, width = box.shape[:2]
        out[MARGIN : MARGIN + height, left : left + width] = box
        left += width + MARGIN
    foot = out.shape[0] - 2 * MARGIN - 20 * len(captions)
    out[foot:] = (0.35 * out[foot:]).astype(np.uint8)
    for line, caption in enumerate(captions):
        write(out, caption, (MARGIN, foot + MARGIN + 14 + 20 * line), 0.5)
    return out


def captioned(picture: Picture, captions: Sequence[str]) -> Picture:
    """`picture` over a dark band that holds `captions`, line by line."""
    band = np.full((MARGIN + 20 * len(captions), picture.shape[1], 3), 28, np.uint8)
    for line, caption in enumerate(captions):
        write(band, caption, (MARGIN // 2, 20 * line + 18), 0.42)
    return np.concatenate([picture, band])
