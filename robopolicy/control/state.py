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


def checked_state(state: BodyState) -> BodyState:
    """A copy of a state with twelve joints.

    Raises ValueError as `checked`, and for a rotation whose rows are not orthonormal.
    """
    copy = BodyState(*(checked(name, getattr(state, name), shape) for name, shape in _SHAPES.items()))
    if np.abs(copy.rotation @ copy.rotation.T - np.eye(3)).max() > 0.1:
        raise ValueError(f"rotation is {copy.rotation.tolist()}: its rows must be orthonormal")
    return copy


def checked(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    """A copy of `given` as contiguous floats, so that numba compiles once.

    Raises ValueError for another shape, a type other than real numbers, and a number that is not finite.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:  # lists of several lengths
        raise ValueError(f"{name} must be an array of the shape {list(shape)}: {error}") from error
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{name} has the type {array.dtype}: it must hold real numbers")
    if array.shape != shape:
        raise ValueError(f"{name} has the shape {list(array.shape)}: it must be {list(shape)}")
    copy = np.array(array, np.float64, order="C")
    if not np.isfinite(copy).all():
        raise ValueError(f"{name} holds a number that is not finite")
    return copy


_SHAPES = {
    "position": (3,),
    "rotation": (3, 3),
    "linear_velocity": (3,),
    "angular_velocity": (3,),
    "joint_positions": (12,),
    "joint_velocities": (12,),
}
