"""What whoever connects a real robot has to know of a task, as JSON can hold it: shared parts.

`Task.describe` puts a description together; what the two tasks add is in `quadruped/description.py` and
`sweep/description.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from robopolicy.envs.physics.base import Array

Description = dict[str, Any]


def measured(settings: Mapping[str, Any], units: Mapping[str, str]) -> Description:
    """Settings with the unit of each, settings within settings included. Raises KeyError for one without."""
    return {
        name: measured(value, units)
        if isinstance(value, Mapping)
        else {"value": list(value) if isinstance(value, tuple) else value, "unit": units[name]}
        for name, value in settings.items()
    }


def pinhole(
    width: int, height: int, tangents: tuple[float, float], position: Array, rotation: Array, frame: str
) -> Description:
    """A pinhole camera: intrinsics in pixels, and its pose in `frame`.

    tangents: of half the horizontal and the vertical field of view. position: [3] (m). rotation: [3, 3], its
    columns the camera's axes x (right), y (down) and z (ahead).
    """
    return {
        "model": "pinhole",
        "width": width,
        "height": height,
        "fx": width / 2 / tangents[0],
        "fy": height / 2 / tangents[1],
        "cx": width / 2,
        "cy": height / 2,
        "distortion": [],
        "frame": frame,
        "position": [round(float(value), 9) for value in position],
        "rotation": [[round(float(value), 9) for value in row] for row in rotation],
        "axes": "columns of rotation: the image's right, its down, and ahead, in frame",
        "first_pixel": "its corner is at (0, 0), its centre at (0.5, 0.5)",
    }
