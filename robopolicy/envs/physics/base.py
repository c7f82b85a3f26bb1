"""The readings and commands that a task needs of a physics engine, and nothing of any engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UPRIGHT = (1.0, 0.0, 0.0, 0.0)
"""The quaternion (w, x, y, z) of no turn."""


@dataclass(frozen=True)
class Box:
    """A fixed box: `center` and `half` extents [3] (m), turned about the vertical by `yaw` (rad).

    `shade` is its grey in pictures.
    """

    center: tuple[float, float, float]
    half: tuple[float, float, float]
    shade: float = 0.7
    yaw: float = 0.0


@dataclass(frozen=True)
class Conditions:
    """What may differ between episodes, and what a controller is not told.

    friction: coefficient between toes and boxes; payload: kg at the base's centre of mass; motor_strength:
    share of every commanded torque, and of the torque limit of a held joint, that motors deliver.
    """

    friction: float = 0.8
    payload: float = 0.0
    motor_strength: float = 1.0


class BodyState(NamedTuple):
    """One reading of a floating-base robot.

    position [3] (m) and rotation [3, 3] (base to world) of the base link; linear [3] (m/s) and
    angular [3] (rad/s) velocity in the world frame; joint_positions (rad) and joint_velocities (rad/s) [J].
    """

    position: Array
    rotation: Array
    linear_velocity: Array
    angular_velocity: Array
    joint_positions: Array
    joint_velocities: Array


class View(NamedTuple):
    """A pinhole camera for pictures: `eye` and `target` in the world (m), vertical field of view (deg)."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    field_of_view: float


class Physics(Protocol):
    """A robot among boxes. `reset` rebuilds the world, so that nothing of an episode reaches the next.

    `config` are the engine's settings, a dataclass.
    """

    config: Any

    def reset(
        self,
        boxes: list[Box],
        position: Array,
        joint_positions: Array,
        conditions: Conditions,
        quaternion: tuple[float, float, float, float] = UPRIGHT,
    ) -> None:
        """Build the world anew, the robot's base at `position` [3] (m), turned by `quaternion`, at rest."""

    def state(self) -> BodyState:
        """Read the robot."""

    def command(self, positions: Array, torques: Array, position_controlled: NDArray[np.bool_]) -> None:
        """Set what each joint [J] does from now on: hold its position (rad) or apply its torque (N m)."""

    def push(self, force: Array) -> None:
        """Push the base's centre of mass with `force` [3] (N, world) during the next control period."""

    def step(self) -> None:
        """Advance by one control period, in as many physics steps as the engine was built with."""

    def foot_contacts(self) -> NDArray[np.bool_]:
        """Whether each foot touches the terrain, [4]."""

    def ray_distances(self, origins: Array, directions: Array, reach: float) -> Array:
        """Distance [N] (m) to the terrain along unit `directions` from `origins`, [N, 3] each.

        It is `reach` where nothing is hit.
        """

    def render(self, view: View, width: int, height: int) -> NDArray[np.uint8]:
        """A picture [height, width, 3] of the robot and its world."""

    def mass_properties(self) -> tuple[float, Array, Array]:
        """Mass (kg), centre of mass [3] and inertia about it [3, 3] at the present pose, in base axes.

        A payload is not part of it.
        """

    def mass_matrix(self) -> Array:
        """Joint-space inertia [18, 18], for velocities ordered base linear and angular (world), joints."""

    def gravity_torques(self) -> Array:
        """Generalised force [18] that holds the robot still against gravity, ordered as in `mass_matrix`."""

    def foot_positions(self) -> Array:
        """Centres of the toes, [4, 3] (m, world)."""

    def foot_jacobians(self) -> Array:
        """Velocity of each toe's centre (world) for each generalised velocity, [4, 3, 18]."""

    def contact_forces(self) -> Array:
        """Force of the terrain on each foot in the last physics step, [4, 3] (N, world)."""

    def close(self) -> None:
        """Release the engine; a second call does nothing."""
