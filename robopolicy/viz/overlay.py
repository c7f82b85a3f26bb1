"""Overlays on pictures of the robot: camera images, the mask of the attention, captions."""

from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]

HALF, TWICE = -1.0, 1.0  # binary logarithms of the attention to a token, relative to the mean
HEAT_SHARE = 0.75  # opacity of the heat over the image
MASKED_OUT = np.array([214.0, 39.0, 40.0])  # red
RED_SHARE = 0.65  # opacity of the mask over the depth image, whose edges stay visible
MARGIN = 12  # pixels
FOOTHOLD = (213, 94, 0)  # vermillion
BAND, LINE = 24, 20  # height of a panel's title, and of a line of captions, pixels
PAPER = 28  # grey level behind text


def depth_picture(
    depth: NDArray[np.float32], level: NDArray[np.float32], mask: NDArray[np.bool_] | None, scale: int
) -> Picture:
    """A depth image [H, W] (m) as a picture [H * scale, W * scale, 3].

    Light grey is the depth `level` [H, W] of level ground. Deeper is darker, and black from 0.3 m below. Red
    pixels are those where `mask` [H, W] is False, which the attention has masked out.
    """
    grey = 210.0 * np.clip(1.0 - (depth - level) / 0.3, 0.0, 1.2)
    colour = np.repeat(np.clip(grey, 0, 255)[..., None], 3, axis=2)
    if mask is not None:
        tinted = RED_SHARE * MASKED_OUT + (1 - RED_SHARE) * colour
        colour = np.where(mask[..., None], colour, tinted)
    return np.kron(colour, np.ones((scale, scale, 1))).astype(np.uint8)


def grey_picture(image: NDArray[np.float32], mask: NDArray[np.bool_] | None, scale: int) -> Picture:
    """An image [H, W] of any unit as a picture [H * scale, W * scale, 3]: larger numbers are brighter.

    The range is that of this image. Numbers that are not finite are black. Red pixels are as those of
    `depth_picture`.
    """
    finite = image[np.isfinite(image)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    span = max(high - low, 1e-9)
    image = np.where(np.isfinite(image), image, low)
    # As depths: the largest number is at the level of the ground, and the smallest is 0.3 m below.
    return depth_picture(0.3 * (high - image) / span, np.zeros_like(image), mask, scale)


def heat_picture(rank: NDArray[np.float32], below: Picture) -> Picture:
    """The attention `rank` [rows, columns] to the tokens of the image `below` [H, W, 3], drawn over it.

    The mean of `rank` is 1. Dark blue is half of it or less, yellow twice or more. H and W are multiples of
    rows and columns.
    """
    level = (np.log2(np.maximum(rank, 2.0**HALF)) - HALF) / (TWICE - HALF)
    shades = np.clip(255 * level, 0, 255).astype(np.uint8)
    colours = cv2.applyColorMap(shades, cv2.COLORMAP_CIVIDIS)[..., ::-1]
    height, width = below.shape[:2]
    heat = np.repeat(np.repeat(colours, height // rank.shape[0], axis=0), width // rank.shape[1], axis=1)
    grey = np.repeat(below.mean(axis=2, keepdims=True), 3, axis=2)
    return (HEAT_SHARE * heat + (1 - HEAT_SHARE) * grey).astype(np.uint8)


def mark(picture: Picture, places: NDArray[np.float64], radius: int) -> None:
    """Draw rings at `places` [N, 2] (x, y, pixels) in `picture`."""
    for x, y in np.round(places).astype(int).tolist():
        cv2.circle(picture, (x, y), radius, (255, 255, 255), 4, cv2.LINE_AA)
        cv2.circle(picture, (x, y), radius, FOOTHOLD, 2, cv2.LINE_AA)


def projected(
    points: NDArray[np.float64], view: tuple[Sequence[float], Sequence[float], float], size: tuple[int, int]
) -> NDArray[np.float64]:
    """Pixels [N, 2] (x, y) of the `points` [N, 3] (m, world, z up) in a picture.

    `view` holds the eye and the target of a pinhole camera (m), and its vertical field of view (deg); `size`
    is the picture's width and height.
    """
    eye, target, field_of_view = view
    width, height = size
    ahead = np.subtract(target, eye) / np.linalg.norm(np.subtract(target, eye))
    right = np.cross(ahead, (0.0, 0.0, 1.0))
    right /= np.linalg.norm(right)
    away = np.asarray(points) - np.asarray(eye)
    scale = height / 2 / np.tan(np.radians(field_of_view) / 2) / (away @ ahead)
    return np.stack(
        [width / 2 + scale * (away @ right), height / 2 - scale * (away @ np.cross(right, ahead))], axis=1
    )


def titled(picture: Picture, title: str) -> Picture:
    """`picture` below a dark band with `title`."""
    band = np.full((BAND, picture.shape[1], 3), PAPER, np.uint8)
    write(band, title, (6, BAND - 7), 0.45)
    return np.concatenate([band, picture])


def write(picture: Picture, text: str, at: tuple[int, int], size: float) -> None:
    """Write `text` in white into `picture`; its baseline starts at `at` (x, y), pixels.

    Text that is too wide becomes smaller.
    """
    room = max(1, picture.shape[1] - at[0] - 4)
    while cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, 1)[0][0] > room:
        size *= 0.95  # the width has steps, since OpenCV rounds a font's height to whole pixels
    cv2.putText(picture, text, at, cv2.FONT_HERSHEY_SIMPLEX, size, (245, 245, 245), 1, cv2.LINE_AA)


def compose(frame: Picture, panels: Mapping[str, Picture], captions: Sequence[str]) -> Picture:
    """`frame` with titled `panels` in a row at the top left, and `captions` in a band at the bottom."""
    out = frame.copy()
    left = MARGIN
    for title, panel in panels.items():
        box = titled(panel, title)
        height, width = box.shape[:2]
        out[MARGIN : MARGIN + height, left : left + width] = box
        left += width + MARGIN
    foot = out.shape[0] - foot_height(len(captions))
    out[foot:] = (0.35 * out[foot:]).astype(np.uint8)
    _write_lines(out[foot:], captions)
    return out


def foot_height(lines: int) -> int:
    """Height of a band with `lines` lines of captions, pixels."""
    return 2 * MARGIN + LINE * lines


def captioned(picture: Picture, captions: Sequence[str]) -> Picture:
    """`picture` above a dark band with `captions`, line by line."""
    foot = np.full((foot_height(len(captions)), picture.shape[1], 3), PAPER, np.uint8)
    _write_lines(foot, captions)
    return np.concatenate([picture, foot])


def centred(panels: Mapping[str, Picture], width: int, height: int) -> Picture:
    """A picture [height, width, 3] with titled `panels` in a row in its centre."""
    out = np.full((height, width, 3), PAPER, np.uint8)
    boxes = [titled(panel, title) for title, panel in panels.items()]
    left = (width - sum(box.shape[1] for box in boxes) - MARGIN * (len(boxes) - 1)) // 2
    for box in boxes:
        top = (height - box.shape[0]) // 2
        out[top : top + box.shape[0], left : left + box.shape[1]] = box
        left += box.shape[1] + MARGIN
    return out


def fitted(picture: Picture, width: int, height: int) -> Picture:
    """`picture` [H, W, 3] as large as it fits into the middle of a picture [height, width, 3]."""
    scale = min(width / picture.shape[1], height / picture.shape[0])
    sides = max(1, int(scale * picture.shape[1])), max(1, int(scale * picture.shape[0]))
    sized = cv2.resize(picture, sides, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST)
    out = np.full((height, width, 3), PAPER, np.uint8)
    left, top = (width - sides[0]) // 2, (height - sides[1]) // 2
    out[top : top + sides[1], left : left + sides[0]] = sized
    return out


def _write_lines(foot: Picture, captions: Sequence[str]) -> None:
    for line, caption in enumerate(captions):
        write(foot, caption, (MARGIN, MARGIN + 14 + LINE * line), 0.5)
