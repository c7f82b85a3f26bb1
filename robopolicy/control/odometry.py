"""Where the robot is by its legs: feet that stand roll on the ground, and the base moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.kinematics import Legs
from robopolicy.control.reading import Reading
from robopolicy.settings import check_number


@dataclass(frozen=True)
class OdometryConfig:
    """Odometry from leg kinematics and the IMU's attitude; its yaw is taken as true.

    Attributes:
      drift: standard deviation (m) of what each policy step adds along x and along y. Feet that slide add
        up to 5 cm over 8 m themselves. The default adds about as much: a random walk of 3 cm.
    """

    drift: float = 0.002

    def __post_init__(self) -> None:
        check_number("drift", self.drift, 0.0, 0.1)


class Odometry:
    """The place of the base, [2] (m), relative to its start."""

    def __init__(self, legs: Legs, reading: Reading) -> None:
        self.place = np.zeros(2)
        self._legs = legs
        self._anchors = anchors(legs, reading)

    def update(self, reading: Reading, standing: NDArray[np.bool_]) -> None:
        """Move by the mean motion of the base over the `standing` feet [4] in a control period."""
        before, self._anchors = self._anchors, anchors(self._legs, reading)
        self.place = self.place + (before - self._anchors)[standing].mean(axis=0)


def anchors(legs: Legs, reading: Any, arrays: Any = np) -> Any:
    """What does not move over the ground while a foot stands, relative to the base, [4, 2] (m, world's axes).

    A toe is a ball that rolls with its shank. Without this, the odometry falls short by 6 %. It rolls along
    the world's axes here: the yaw of a robot that walks ahead is small. `arrays` is NumPy or its counterpart
    in JAX.
    """
    roll, pitch, _ = reading.attitude
    joints = reading.joints
    rolled = arrays.stack([pitch + joints[:, 1] + joints[:, 2], -roll - legs.turns * joints[:, 0]], axis=1)
    return (reading.feet_world - reading.position)[:, :2] - legs.foot_radius * rolled
