"""Episodes as Rerun recordings: what stands where, images and numbers over time. Needs the extra `rerun`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import rerun
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "recordings are written by rerun-sdk, which is not installed: pip install 'robopolicy[rerun]'"
    ) from error

APPLICATION = "robopolicy"
SCENE = {
    "stones": "#999999",
    "table": "#999999",
    "bowls": "#009e73",
    "balls": "#d55e00",
    "footholds": "#d55e00",
}
ROBOT = {"trunk": "#000000", "legs": "#56b4e9", "feet": "#0072b2", "arms": "#56b4e9", "spatulas": "#0072b2"}


class Recording:
    """Takes what happens at moments of growing time; made by `open_recording`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._drawn: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def at(self, seconds: float, step: int) -> None:
        """All that is logged from now on happened then."""
        self._stream.set_time("time", duration=seconds)
        self._stream.set_time("step", sequence=step)

    def shapes(self, name: str, shapes: Mapping[str, Any]) -> None:
        """Log the `Boxes`, `Balls` and `Lines` of the world of `name`; what has not changed stays."""
        for part, shape in shapes.items():
            path = name, "world", *part.split("/")
            before = self._drawn.get(path)
            if before is None or not all(map(np.array_equal, before, shape)):
                self._drawn[path] = shape
                self._stream.log(list(path), _drawing(part, shape))

    def depth(self, name: str, part: str, image: NDArray[np.float32]) -> None:
        """A depth image [H, W] in metres that `name` sees."""
        self._stream.log([name, *part.split("/")], rerun.DepthImage(image, meter=1.0))

    def image(self, name: str, part: str, image: NDArray[np.uint8]) -> None:
        """A picture [H, W, 3] of `name`."""
        self._stream.log([name, *part.split("/")], rerun.Image(image))

    def number(self, name: str, part: str, value: float) -> None:
        """A point of a curve of `name`."""
        self._stream.log([name, *part.split("/")], rerun.Scalars(value))


@contextlib.contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """A recording that appears at `path`, an .rrd, once it is complete; on an error nothing is left."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}.rrd")
    stream = rerun.RecordingStream(APPLICATION, recording_id=path.stem)
    # Kept in memory until its end: on a full disk Rerun's own file writer ends, and is waited for for ever.
    kept = stream.memory_recording()
    try:
        stream.log("/", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        yield Recording(stream)
        partial.write_bytes(kept.drain_as_bytes())
        os.replace(partial, path)
    finally:
        stream.disconnect()
        partial.unlink(missing_ok=True)


def _drawing(part: str, shape: Any) -> Any:
    room, _, rest = part.partition("/")
    colour = [int((ROBOT[rest] if rest else SCENE[room])[i : i + 2], 16) for i in (1, 3, 5)]
    if hasattr(shape, "halves"):
        from scipy.spatial.transform import Rotation

        turns = Rotation.from_matrix(shape.rotations).as_quat()
        return rerun.Boxes3D(
            centers=shape.centers,
            half_sizes=shape.halves,
            quaternions=turns,
            colors=[colour],
            fill_mode="solid",
        )
    if hasattr(shape, "centers"):
        return rerun.Points3D(shape.centers, radii=[shape.radius], colors=[colour])
    return rerun.LineStrips3D(list(shape.points), radii=[shape.radius], colors=[colour])
