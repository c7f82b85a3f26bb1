"""Depth images as ROS 2 publishes them (sensor_msgs/Image), for the cameras of a bundle."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Encodings of depth and their unit in metres, by ROS's REP 118.
ENCODINGS = {"32FC1": ("f4", 1.0), "16UC1": ("u2", 1e-3)}


class Image(NamedTuple):
    """A sensor_msgs/Image.

    Attributes:
      stamp: nanoseconds of its header; frame: its frame.
      height, width: pixels; step: bytes of a row.
      encoding, is_bigendian: of the pixels.
    """

    stamp: int
    frame: str
    height: int
    width: int
    encoding: str
    is_bigendian: int
    step: int
    data: bytes


def depth_image(depth: NDArray[np.float32], stamp: int, frame: str) -> Image:
    """The message of a depth image [H, W] (m)."""
    height, width = depth.shape
    return Image(stamp, frame, height, width, "32FC1", 0, 4 * width, depth.astype("<f4").tobytes())


def depth_of(topic: str, image: Image, shape: tuple[int, ...], farthest: float) -> NDArray[np.float32]:
    """The depth [H, W] (m) of `image`: 0 where it has no reading or a negative one, `farthest` (m) at most.

    Raises ValueError, in one line that begins with `topic`, for another shape or encoding, and for data of
    another length.
    """
    if (image.height, image.width) != shape:
        wanted = " x ".join(map(str, shape))
        raise ValueError(
            f"{topic} has {image.height} x {image.width} pixels: the bundle reads {wanted}; crop and scale "
            "to the bundle's camera"
        )
    if image.encoding not in ENCODINGS:
        raise ValueError(f"{topic} has the encoding {image.encoding!r}: it must be {' or '.join(ENCODINGS)}")
    kind, unit = ENCODINGS[image.encoding]
    dtype = np.dtype((">" if image.is_bigendian else "<") + kind)
    row = image.width * dtype.itemsize
    if image.step < row or len(image.data) != image.height * image.step:
        raise ValueError(
            f"{topic} has {len(image.data)} bytes in rows of {image.step}: it must have {image.height} rows "
            f"of at least {row}"
        )
    rows = np.frombuffer(image.data, np.uint8).reshape(image.height, image.step)[:, :row]
    pixels = np.ascontiguousarray(rows).view(dtype)
    depth = np.nan_to_num(pixels.astype(np.float32), nan=0.0, posinf=np.inf, neginf=0.0) * np.float32(unit)
    return np.clip(depth, np.float32(0.0), np.float32(farthest))
