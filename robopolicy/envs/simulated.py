"""What the tasks of the package share: an engine, pictures, episodes, and parts of descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.drawing.scene import LARGEST, Scene
from robopolicy.envs.members import Description
from robopolicy.envs.physics import ENGINES, check_renderer, default_engine
from robopolicy.envs.physics.base import Array, Engine, View
from robopolicy.envs.task import Task
from robopolicy.naming import one_of
from robopolicy.settings import check_count

LONGEST_EPISODE = 86400.0  # s; a reset draws the pushes of a whole episode
MIDDLE = (0.5, 0.5)
# Where a renderer samples a pixel, in pixels to the right of and below its upper left corner.
SAMPLES = {"software": (0.0, 1.0), "tiny": (0.0, 1.0), "opengl": MIDDLE}

Observation = dict[str, NDArray[Any]]
Step = tuple[Observation, float, bool, bool, dict[str, Any]]


class SimulatedTask(Task):
    """A task in one of its `engines`, whose subclass makes `physics` and observes it.

    `renderer` draws its pictures: "software" gives the same picture on every engine.
    """

    engines = ENGINES
    physics: Engine
    _scene: Scene | None = None

    def __init__(
        self, engine: str | None, renderer: str, render_mode: str | None, render_size: tuple[int, int]
    ) -> None:
        """`render_size` is (width, height). Raises ValueError, in one line, for any bad argument."""
        self.engine = default_engine(renderer) if engine is None else one_of("engine", engine, self.engines)
        self.renderer = check_renderer(renderer, self.engine)
        if render_mode is not None:
            one_of("render_mode", render_mode, self.metadata["render_modes"])
        sides = render_size if isinstance(render_size, tuple | list) else ()
        if len(sides) != 2 or not all(_is_side(side) for side in sides):
            raise ValueError(f"render_size is {render_size!r}: it must be a width and a height in pixels")
        self.render_mode = render_mode
        self._render_size = render_size
        self._running: bool | None = None  # None before a reset

    def check_begun(self, name: str) -> None:
        """Raise RuntimeError before the first reset; `name` is the method that is called."""
        if self._running is None:
            raise RuntimeError(f"{name} called before reset: call reset")

    def check_running(self, name: str) -> None:
        """Raise RuntimeError outside an episode; `name` is the method that is called."""
        if not self._running:
            raise RuntimeError(f"{name} called before reset, or after the end of an episode: call reset")

    def checked(self, action: NDArray[np.float32]) -> NDArray[np.float32]:
        """`action` as float32. Raises ValueError for another shape, no floats, or entries outside [-1, 1]."""
        shape = self.action_space.shape
        try:
            array = np.asarray(action)
        except ValueError as error:  # lists of several lengths
            raise ValueError(f"action must be {list(shape or ())} floats: {error}") from error
        if array.shape != shape or not np.issubdtype(array.dtype, np.floating):
            raise ValueError(
                f"action has shape {array.shape} and dtype {array.dtype}: "
                f"it must be {list(shape or ())} floats"
            )
        if not np.isfinite(array).all() or np.abs(array).max() > 1.0 + 1e-6:
            raise ValueError(f"action is {array.tolist()}: every entry must be a number in [-1, 1]")
        return array.astype(np.float32)

    def stepped(self, reward: float, cause: str, is_late: bool) -> Step:
        """What `step` returns; the episode ends by its `cause`, or by time if it `is_late`."""
        truncated = is_late and not cause
        self._running = not (cause or truncated)
        info = self.info(cause or ("time" if truncated else ""))
        return self.observation(), float(reward), bool(cause), truncated, info

    def observation(self) -> Observation:
        """What the policy observes now."""
        raise NotImplementedError

    def info(self, cause: str) -> dict[str, Any]:
        """The outcomes now, and the `cause` of the episode's end ("" while it runs)."""
        raise NotImplementedError

    def render(self) -> NDArray[np.uint8] | None:
        """A picture [height, width, 3] from the camera of `view`; None without a render mode."""
        if self.render_mode is None:
            return None
        self.check_begun("render")
        view = self.view()
        return None if view is None else self.picture(view, *self._render_size)

    def picture(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """A picture [height, width, 3] of the world as it is now.

        Raises ValueError, in one line, for a bad size, and for a view from the inside of a body;
        RuntimeError before the first reset.
        """
        self.check_begun("picture")
        for name, side in (("width", width), ("height", height)):
            check_count(name, side, 1, LARGEST)
        if self.renderer != "software":
            return self.physics.render(view, width, height)
        if self._scene is None:
            self._scene = self.scene()
        return self._scene.picture(view, width, height, self.poses())

    def scene(self) -> Scene:
        """What the software renderer draws. Where bodies that stand still change, set `_scene` to None."""
        raise NotImplementedError

    def poses(self) -> Array:
        """Poses [M, 4, 4] (to world) of the bodies of `scene` that move."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the engine; a second call does nothing."""
        if self._running:
            self._running = False
        self.physics.close()


def _is_side(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def measured(settings: Mapping[str, Any], units: Mapping[str, str]) -> Description:
    """Settings with the unit of each, settings within settings included. Raises KeyError for one without."""
    return {
        name: measured(value, units)
        if isinstance(value, Mapping)
        else {"value": list(value) if isinstance(value, tuple) else value, "unit": units[name]}
        for name, value in settings.items()
    }


def pinhole(
    width: int,
    height: int,
    tangents: tuple[float, float],
    position: Array,
    rotation: Array,
    frame: str,
    sample: tuple[float, float] = MIDDLE,
) -> Description:
    """A pinhole camera: intrinsics in pixels, and its pose in `frame`.

    tangents: of half the horizontal and the vertical field of view. position: [3] (m). rotation: [3, 3], its
    columns the camera's axes x (right), y (down) and z (ahead). sample: one of `SAMPLES`.
    """
    return {
        "model": "pinhole",
        "width": width,
        "height": height,
        "fx": width / 2 / tangents[0],
        "fy": height / 2 / tangents[1],
        # A sample counts as the middle of its pixel.
        "cx": width / 2 + MIDDLE[0] - sample[0],
        "cy": height / 2 + MIDDLE[1] - sample[1],
        "distortion": [],
        "frame": frame,
        "position": [round(float(value), 9) for value in position],
        "rotation": [[round(float(value), 9) for value in row] for row in rotation],
        "axes": "columns of rotation: the image's right, its down, and ahead, in frame",
        "first_pixel": "its corner is at (0, 0), its centre at (0.5, 0.5)",
    }
