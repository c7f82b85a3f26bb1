"""The stepping stones for a low level that runs elsewhere and commands the motors one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.robot import Robot, WalkerConfig
from robopolicy.envs.physics.base import Array, BodyState
from robopolicy.envs.quadruped.stepping_stones import SteppingStones
from robopolicy.envs.quadruped.walker import Walker
from robopolicy.envs.simulated import Observation


class Motors(NamedTuple):
    """Commands of the motors [12], as `MujocoPhysics.servo` takes them."""

    positions: Array
    velocities: Array
    stiffness: Array
    damping: Array
    torques: Array


Drive = Callable[[BodyState], Motors]


class DrivenWalker(Walker):
    """A robot whose motors `drive` commands: it gets the true state, and returns what the motors do next."""

    def __init__(self, robot: Robot, config: WalkerConfig, drive: Drive) -> None:
        super().__init__(robot, config)
        self._drive = drive

    def advance(self) -> NDArray[np.bool_]:
        """Advance by one control period. No foot touches down by a schedule."""
        motors: Any = self.physics  # of the engines, MuJoCo alone has them
        motors.servo(*self._drive(self.physics.state()))
        self._step()
        # A trot stands on two feet at least.
        self.true_ground = float(np.sort(self.reading.feet_world[:, 2])[:2].mean()) - self.robot.foot_radius
        return np.zeros(4, bool)


class DrivenStones(SteppingStones):
    """The task with its courses, cameras and ends; actions have no effect."""

    def __init__(self, drive: Drive, **settings: Any) -> None:
        super().__init__(engine="mujoco", **settings)
        self.walker = DrivenWalker(self.config.robot, self.config.walker, drive)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """As that of the task. A robot that lies down lies on its trunk."""
        began = super().reset(seed=seed, options=options)
        physics: Any = self.physics
        physics.land_on_trunk()
        return began

    def depth_images(self) -> dict[str, NDArray[np.float32]]:
        """The depth images [H, W] (m) of now, by name."""
        return self.sensors.images(self._ground)
