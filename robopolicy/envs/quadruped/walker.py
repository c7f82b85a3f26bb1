"""The low level in a physics engine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.controller import Controller
from robopolicy.envs.physics.base import Physics


class Walker(Controller):
    """Runs the gait of a simulated robot."""

    def begin(self, physics: Physics) -> None:
        """Start at time 0 from the pose that `physics` is in."""
        self.reset(physics.state(), physics.mass_properties())
        self.physics = physics

    def advance(self) -> NDArray[np.bool_]:
        """Advance by one control period. Returns which feet touched down by schedule in it, [4]."""
        self.physics.command(*self.command())
        self.physics.step()
        self.observe(self.physics.state())
        return np.asarray(self.touched)
