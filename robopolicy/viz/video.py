"""Video files, written whole or not at all."""

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import IO

import cv2
import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from robopolicy.writing import whole

QUALITY = 25  # libx264's constant rate factor: 0 loses nothing, 51 is the worst


class VideoWriter:
    """Encodes pictures [H, W, 3] uint8 of one size with even sides; made by `open_video`."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path, self._rate = path, Fraction(frames_per_second).limit_denominator()
        self._shape: tuple[int, ...] | None = None
        self._ffmpeg: subprocess.Popen[bytes] | None = None
        self._stderr = _unnamed_file()

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Append one frame.

        Raises ValueError for a frame of another shape than the first, OSError if the video cannot be written.
        """
        if self._shape not in (None, picture.shape):
            raise ValueError(f"picture has shape {picture.shape}: the first of the video has {self._shape}")
        self._shape = picture.shape
        if self._ffmpeg is None:
            height, width = picture.shape[:2]
            source = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {self._rate} -i -"
            output = f"-an -vcodec libx264 -pix_fmt yuv420p -crf {QUALITY}"
            path = self._path.absolute()  # ffmpeg would read a relative path with a colon as a protocol
            self._ffmpeg = subprocess.Popen(
                [imageio_ffmpeg.get_ffmpeg_exe(), *f"-y -v error {source} {output}".split(), path],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                process_group=0,  # Ctrl-C reaches this process only, which ends ffmpeg
            )
        assert self._ffmpeg.stdin is not None
        try:
            self._ffmpeg.stdin.write(np.ascontiguousarray(picture).data)
        except BrokenPipeError:
            self._ffmpeg.communicate()
            raise self._failure() from None

    def finish(self) -> None:
        """Complete the file. Raises OSError if it cannot be written, RuntimeError without a frame."""
        if self._ffmpeg is None:
            raise RuntimeError(f"no frame was added to {self._path.name}")
        self._ffmpeg.communicate()
        if self._ffmpeg.returncode:
            raise self._failure()

    def _failure(self) -> OSError:
        self._stderr.seek(0)
        lines = self._stderr.read().strip().splitlines() or ["no reason given"]
        return OSError(f"{self._path.name} cannot be written, ffmpeg has ended: {lines[0]}")

    def close(self) -> None:
        """End ffmpeg at once."""
        self._stderr.close()
        if self._ffmpeg is not None:
            self._ffmpeg.kill()
            self._ffmpeg.communicate()


@contextlib.contextmanager
def open_video(path: Path, frames_per_second: float) -> Iterator[VideoWriter]:
    """Yield a writer, and move its H.264 mp4 to `path` at the end. On an error nothing is left behind.

    Raises ValueError if `path` does not end in .mp4 or its folder does not exist, OSError if it cannot be
    written.
    """
    if path.suffix != ".mp4":
        raise ValueError(f"video is {str(path)!r}: its name must end in .mp4")
    if not path.parent.is_dir():
        raise ValueError(f"video is {str(path)!r}: the folder {str(path.parent)!r} does not exist")
    with whole(path) as partial, contextlib.closing(VideoWriter(partial, frames_per_second)) as writer:
        yield writer
        writer.finish()


def _unnamed_file() -> IO[str]:
    """A file for messages: in memory where the system can, since the disk may be full."""
    if hasattr(os, "memfd_create"):  # on Linux
        return os.fdopen(os.memfd_create("ffmpeg"), "w+")
    return tempfile.TemporaryFile("w+")


def still(video: Path) -> NDArray[np.uint8]:
    """The middle frame [H, W, 3] of a video. Raises RuntimeError if it cannot be read."""
    capture = cv2.VideoCapture(str(video))
    try:
        capture.set(cv2.CAP_PROP_POS_FRAMES, capture.get(cv2.CAP_PROP_FRAME_COUNT) // 2)
        read, frame = capture.read()
    finally:
        capture.release()
    if not read:
        raise RuntimeError(f"{str(video)!r} cannot be read")
    return np.ascontiguousarray(frame[..., ::-1], np.uint8)
