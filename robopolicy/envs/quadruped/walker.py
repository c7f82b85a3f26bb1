"""The low level in a physics engine."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.controller import Controller
from robopolicy.control.reading import read
from robopolicy.envs.physics.base import Array, BodyState, Physics
from robopolicy.envs.quadruped.body_sensors import TrueState


class Walker(Controller):
    """Runs the gait of a simulated robot.

    `reading` is what the low level knows, `truth` what is true, read from `state`. `true_ground` is the
    height (m) of the ground below the standing feet. If `has_diverged`, the engine's state holds numbers that
    are not finite; all of these are of the control period before.
    """

    def begin(self, physics: Physics, knowledge: TrueState | None = None) -> None:
        """Start at time 0 from the pose that `physics` is in, with the true state unless told otherwise."""
        self.physics, self._knowledge = physics, knowledge or TrueState()
        state = physics.state()
        known = self._knowledge.begin(state)
        self.reset(known, physics.mass_properties())
        self._compare(known, state)
        self.true_ground = self.ground
        self.has_diverged = False

    def advance(self) -> NDArray[np.bool_]:
        """Advance by one control period. Returns which feet touched down by schedule in it, [4]."""
        positions, torques, held = self.command()
        self.true_ground = self.ground
        if self.truth is not self.reading:
            standing = self.truth.feet_world[~self.swinging, 2]
            self.true_ground = float(standing.mean()) - self.robot.foot_radius
        self.physics.command(self._knowledge.targets(positions), torques, held)
        self._step()
        return np.asarray(self.touched)

    @property
    def misplaced(self) -> Array:
        """How far the known place of the base is from the true one, [3] (m, world)."""
        return self.reading.position - self.truth.position

    def _step(self) -> None:
        """Advance the engine by a control period, and read its state."""
        self.physics.step()
        state = self.physics.state()
        self.has_diverged = not _is_finite(state)
        if not self.has_diverged:
            known = self._knowledge.follow(state, ~self.swinging)
            self.observe(known)
            self._compare(known, state)

    def _compare(self, known: BodyState, state: BodyState) -> None:
        self.state = state
        self.truth = self.reading if known is state else read(state, self._legs)


@numba.njit(cache=True)
def _is_finite(state: BodyState) -> bool:
    place = state.position.sum() + state.rotation.sum() + state.joint_positions.sum()
    rates = state.linear_velocity.sum() + state.angular_velocity.sum() + state.joint_velocities.sum()
    return np.isfinite(place + rates)
