"""Rerun recordings of episodes: shapes, images and numbers over time. It needs the extra `rerun`."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.writing import whole

try:
    import rerun
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "recordings need rerun-sdk, which is not installed: pip install rerun-sdk"
    ) from error

APPLICATION = "robopolicy"
SCENE = {
    "stones": "#999999",
    "table": "#999999",
    "bowls": "#009e73",
    "balls": "#d55e00",
    "footholds": "#d55e00",
}
OTHER = "#56b4e9"  # what has no colour of its own
ROBOT = {"trunk": "#000000", "legs": "#56b4e9", "feet": "#0072b2", "arms": "#56b4e9", "spatulas": "#0072b2"}


class Recording:
    """Logs data in the order of time; made by `open_recording`."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._logged: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def at(self, seconds: float, step: int) -> None:
        """Set the time of all that is logged from now on."""
        self._stream.set_time("time", duration=seconds)
        self._stream.set_time("step", sequence=step)

    def shapes(self, name: str, shapes: Mapping[str, Any]) -> None:
        """Log the `Boxes`, `Balls` and `Lines` of the world of `name`, as far as they have changed."""
        for part, shape in shapes.items():
            path = name, "world", *part.split("/")
            before = self._logged.get(path)
            if before is None or not all(map(np.array_equal, before, shape)):
                self._logged[path] = shape
                self._stream.log(list(path), _drawing(part, shape))

    def depth(self, name: str, part: str, image: NDArray[np.float32]) -> None:
        """Log a depth image [H, W] (m) of `name`."""
        self._stream.log([name, *part.split("/")], rerun.DepthImage(image, meter=1.0))

    def image(self, name: str, part: str, image: NDArray[np.uint8]) -> None:
        """Log a picture [H, W, 3] of `name`."""
        self._stream.log([name, *part.split("/")], rerun.Image(image))

    def number(self, name: str, part: str, value: float) -> None:
        """Log a point of a curve of `name`."""
        self._stream.log([name, *part.split("/")], rerun.Scalars(value))


@contextlib.contextmanager
def open_recording(path: Path) -> Iterator[Recording]:
    """Yield a recording, and write it to `path`, an .rrd, at the end. On an error nothing is left behind."""
    stream = rerun.RecordingStream(APPLICATION, recording_id=path.stem)
    # In memory, since Rerun's own file writer hangs on a full disk.
    buffer = stream.memory_recording()
    try:
        stream.log("/", rerun.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
        yield Recording(stream)
        with whole(path) as partial:
            partial.write_bytes(buffer.drain_as_bytes())
    finally:
        stream.disconnect()


def _drawing(part: str, shape: Any) -> Any:
    room, _, rest = part.partition("/")
    colour = [
        int((ROBOT.get(rest, OTHER) if rest else SCENE.get(room, OTHER))[i : i + 2], 16) for i in (1, 3, 5)
    ]
    if "halves" in shape._fields:
        from scipy.spatial.transform import Rotation

        turns = Rotation.from_matrix(shape.rotations).as_quat()
        return rerun.Boxes3D(
            centers=shape.centers,
            half_sizes=shape.halves,
            quaternions=turns,
            colors=[colour],
            fill_mode="solid",
        )
    if "centers" in shape._fields:
        return rerun.Points3D(shape.centers, radii=[shape.radius], colors=[colour])
    return rerun.LineStrips3D(list(shape.points), radii=[shape.radius], colors=[colour])
