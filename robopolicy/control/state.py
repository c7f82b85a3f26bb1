"""What a controller reads: the state of a floating base and its joints."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class BodyState(NamedTuple):
    """The state of a floating-base robot.

    Attributes:
      position, rotation: of the base link, [3] (m) and [3, 3] (base to world).
      linear_velocity, angular_velocity: of the base link, [3] (m/s) and [3] (rad/s), world frame.
      joint_positions, joint_velocities: [J] (rad) and [J] (rad/s).
    """

    position: Array
    rotation: Array
    linear_velocity: Array
    angular_velocity: Array
    joint_positions: Array
    joint_velocities: Array


def check_state(state: BodyState) -> None:
    """Raise ValueError unless the arrays, with twelve joints, have their shapes and finite numbers."""
    for name, shape in _SHAPES.items():
        check_finite(name, getattr(state, name), shape)


def check_finite(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `array` has this shape and all its numbers are finite."""
    if np.shape(array) != shape:
        raise ValueError(f"{name} has the shape {list(np.shape(array))}: it must be {list(shape)}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds a number that is not finite")


_SHAPES = {
    "position": (3,),
    "rotation": (3, 3),
    "linear_velocity": (3,),
    "angular_velocity": (3,),
    "joint_positions": (12,),
    "joint_velocities": (12,),
}
