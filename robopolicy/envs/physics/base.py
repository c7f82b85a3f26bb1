"""The engine-independent interface of a physics engine: readings and commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.state import Array as Array
from robopolicy.control.state import BodyState as BodyState

STEP = 0.002  # s, a physics step of the quadrupeds
NEAR = 0.05  # m along the view, where a picture begins
UPRIGHT = (1.0, 0.0, 0.0, 0.0)  # the identity quaternion (w, x, y, z)


@dataclass(frozen=True)
class Box:
    """A fixed box with its `center` and `half` extents [3] (m), and its `yaw` (rad).

    `shade` is its grey level in pictures, from 0 to 1.
    """

    center: tuple[float, float, float]
    half: tuple[float, float, float]
    shade: float = 0.7
    yaw: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """Physical parameters of an episode, which controllers do not observe.

    friction: coefficient between toes and boxes; payload: mass (kg) at the base's centre of mass;
    motor_strength: share of a commanded torque, and of the torque limit of a held joint, that motors deliver.
    """

    friction: float = 0.8
    payload: float = 0.0
    motor_strength: float = 1.0


def substeps(control_period: float) -> int:
    """Physics steps of a quadruped in a control period (s).

    Raises ValueError for a period that is no multiple of `STEP`.
    """
    count = round(control_period / STEP)
    if count < 1 or abs(count * STEP - control_period) > 1e-9:
        raise ValueError(f"control_period is {control_period}: engines need a multiple of {STEP}")
    return count


class View(NamedTuple):
    """A pinhole camera for pictures: `eye` and `target` in the world (m), vertical field of view (deg)."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    field_of_view: float


class Lighting(NamedTuple):
    """The light of pictures, and how far they reach.

    direction: to the light, which comes from afar. ambient: the share that reaches all faces alike. far: the
    distance (m) along the view beyond which nothing is drawn.
    """

    direction: tuple[float, float, float]
    ambient: float
    far: float


STONES_LIGHT = Lighting((1.0, -2.0, 4.0), ambient=0.75, far=20.0)


class Start(NamedTuple):
    """The initial scene of a robot among boxes.

    Its base is at rest at `position` [3] (m) and `quaternion` (w, x, y, z), with joints [J] (rad).
    """

    boxes: list[Box]
    position: Array
    joint_positions: Array
    conditions: Conditions = Conditions()
    quaternion: tuple[float, float, float, float] = UPRIGHT


class Engine(Protocol):
    """A simulated world. `config` is a dataclass with the engine's settings.

    Each engine also has a `reset` that rebuilds the world, so that episodes are independent.
    """

    config: Any

    def step(self) -> None:
        """Advance by one control period, in the configured number of physics steps."""

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """A picture [height, width, 3] of the robots and their world by the engine's own renderer."""

    def close(self) -> None:
        """Release the engine; a second call does nothing."""


class Physics(Engine, Protocol):
    """A robot among boxes."""

    def reset(self, start: Start) -> None:
        """Rebuild the world."""

    def state(self) -> BodyState:
        """The present state of the robot."""

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        """Set the command of each joint [J]: hold a position (rad) or apply a torque (N m)."""

    def push(self, force: Array) -> None:
        """Push the base's centre of mass with `force` [3] (N, world) during the next control period."""

    def mass_properties(self) -> tuple[float, Array, Array]:
        """Mass (kg), centre of mass [3] and inertia about it [3, 3] at the present pose, in base axes.

        They exclude the payload.
        """
