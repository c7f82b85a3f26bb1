"""What a controller reads: the state of a floating base and its joints."""

from __future__ import annotations

from typing import NamedTuple

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
