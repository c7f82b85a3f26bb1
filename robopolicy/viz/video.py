"""Video files, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray


class VideoWriter:
    """Takes pictures [H, W, 3] uint8 of one size with even sides; made by `open_video`."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path, self._rate = path, frames_per_second
        self._pipe: Any = None
        self.frames = 0

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append one frame."""
        if self._pipe is None:
            height, width = picture.shape[:2]
            # The default block of 16 would resize the picture.
            self._pipe = imageio_ffmpeg.write_frames(
                str(self._path), (width, height), fps=self._rate, codec="libx264", macro_block_size=2
            )
            with warnings.catch_warnings():
                # JAX warns of forks; this one only starts ffmpeg.
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                self._pipe.send(None)
        self._pipe.send(np.ascontiguousarray(picture))
        self.frames += 1

    def close(self) -> None:
        """Finish the file."""
        if self._pipe is not None:
            self._pipe.close()


@contextlib.contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[VideoWriter]:
    """An H.264 mp4 that appears at `path` once it is complete; on an error nothing is left behind.

    Raises ValueError where `path` does not end in .mp4 or its folder does not exist.
    """
    if path.suffix != ".mp4":
        raise ValueError(f"video is {str(path)!r}: its name must end in .mp4")
    if not path.parent.is_dir():
        raise ValueError(f"video is {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    partial = path.with_name(f".{path.stem}.{os.getpid()}.mp4")
    writer = VideoWriter(partial, frames_per_second)
    try:
        yield writer
        writer.close()
        if writer.frames == 0:
            raise RuntimeError(f"no frame was added to {str(path)!r}")
        if (kept := _frames(partial)) != writer.frames:  # a full disk ends ffmpeg, which tells nobody
            raise OSError(f"{str(path)!r} holds {kept} of {writer.frames} frames; is the disk full?")
        os.replace(partial, path)
    finally:
        writer.close()
        partial.unlink(missing_ok=True)


def _frames(video: Path) -> int:
    """The frames that a video says it has; 0 where it cannot be read."""
    if not video.is_file():
        return 0
    capture = cv2.VideoCapture(str(video))
    try:
        return max(0, int(capture.get(cv2.CAP_PROP_FRAME_COUNT))) if capture.isOpened() else 0
    finally:
        capture.release()


def still(video: Path) -> NDArray[np.uint8]:
    """The picture [H, W, 3] in the middle of a video."""
    capture = cv2.VideoCapture(str(video))
    try:
        capture.set(cv2.CAP_PROP_POS_FRAMES, capture.get(cv2.CAP_PROP_FRAME_COUNT) // 2)
        read, frame = capture.read()
    finally:
        capture.release()
    if not read:
        raise RuntimeError(f"{str(video)!r} cannot be read")
    return np.ascontiguousarray(frame[..., ::-1], np.uint8)
