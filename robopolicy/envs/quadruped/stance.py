"""Stance legs: convex model-predictive control of ground forces (Di Carlo et al., 2018).

The robot is one rigid body whose attitude stays near level, in a frame that is turned with its yaw, so
attitude rates are angular velocities. With accelerations a_j = G_j u_j + g over steps of dt,

    velocity_k = velocity_0 + dt sum_{j<k} a_j
    pose_k     = pose_0 + k dt velocity_0 + dt^2 sum_{j<k} (k - j - 1/2) a_j

and the quadratic cost of tracking a reference becomes a dense QP in the forces u of the legs that the
gait schedules to stand, each inside its own friction pyramid. Solved by ProxQP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from proxsuite import proxqp

from robopolicy.envs.physics.base import Array

FORCE_UNIT = 100.0  # N: the solver works near one
NO_BOUND = -1e20
ACTIVE = 1e-9  # multiplier of a constraint that binds; the others are below 1e-12
GRAVITY = np.array([0.0, 0.0, 0.0, 0.0, 0.0, -9.81])


@dataclass(frozen=True)
class StanceConfig:
    """Weights on (roll, pitch, yaw, x, y, z) and on their rates.

    They are those published for this robot but for yaw's, which are larger: with 0.2 and 1 the walker
    drifted off the stones within 8 m. `friction` is below the simulated one, as a margin.
    """

    steps: int = 6
    step_period: float = 0.04  # s
    pose_weights: tuple[float, ...] = (5.0, 5.0, 20.0, 0.0, 0.0, 10.0)
    rate_weights: tuple[float, ...] = (0.0, 0.0, 5.0, 1.0, 1.0, 1.0)
    force_weight: float = 1e-6
    friction: float = 0.45
    force_limits: tuple[float, float] = (0.1, 10.0)  # of one leg's f_z, in body weights / 4
    accuracy: float = 1e-9


class ConvexMPC:
    """Ground forces for the present moment from a plan over `steps` periods."""

    def __init__(self, mass: float, inertia: Array, config: StanceConfig) -> None:
        """`mass` (kg) and `inertia` [3, 3] (kg m^2, about the centre of mass, base axes)."""
        self.config = config
        self._mass = mass
        self._inverse_inertia = np.linalg.inv(inertia)
        H, dt = config.steps, config.step_period
        k = np.arange(1, H + 1)[:, None]
        j = np.arange(H)[None, :]
        self._rate_gain = dt * (j < k)  # [k, j]
        self._pose_gain = dt * dt * (k - j - 0.5) * (j < k)
        self._rate_coupling = np.kron(self._rate_gain.T @ self._rate_gain, np.ones((12, 12)))
        self._pose_coupling = np.kron(self._pose_gain.T @ self._pose_gain, np.ones((12, 12)))
        self._pose_weights = np.array(config.pose_weights)
        self._rate_weights = np.array(config.rate_weights)
        self._pyramid = np.array(
            [[s * (1 - a), s * a, -config.friction] for a in (0, 1) for s in (1.0, -1.0)] + [[0.0, 0.0, 1.0]]
        )
        weight_share = mass * 9.81 / 4 / FORCE_UNIT
        self._low = np.array([NO_BOUND] * 4 + [config.force_limits[0] * weight_share])
        self._high = np.array([0.0] * 4 + [config.force_limits[1] * weight_share])
        self.reset()

    def reset(self) -> None:
        """Forget all warm starts, so that an episode does not depend on the one before it."""
        self._solvers: dict[int, proxqp.dense.QP] = {}
        self._last: bytes = b""

    def forces(
        self,
        pose: Array,
        rates: Array,
        desired_rates: Array,
        height: float,
        feet: Array,
        standing: NDArray[np.bool_],
    ) -> Array:
        """Ground reaction on each foot now, [4, 3] (N), yaw frame; zero for legs that swing.

        pose: [6] roll, pitch, yaw error (rad), x, y, z (m) of the centre of mass; rates: [6] angular (rad/s)
        and linear (m/s) velocity; desired_rates: [6]; height: wanted z (m); feet: [H, 4, 3] relative to the
        centre of mass (m) at each step of the plan; standing: [H, 4].
        """
        H = self.config.steps
        G = np.zeros((H, 6, 4, 3))
        x, y, z = feet[..., 0], feet[..., 1], feet[..., 2]
        zero = np.zeros_like(x)
        cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(H, 4, 3, 3)
        G[:, :3] = np.einsum("ab,hlbc->halc", self._inverse_inertia, cross)
        G[:, 3:] = (np.eye(3) / self._mass)[None, :, None, :]
        G *= standing[:, None, :, None] * FORCE_UNIT
        columns = G.transpose(1, 0, 2, 3).reshape(6, H * 12)
        active = np.flatnonzero(np.repeat(standing.ravel(), 3))
        P = (columns.T * self._rate_weights) @ columns * self._rate_coupling
        P += (columns.T * self._pose_weights) @ columns * self._pose_coupling
        P[np.diag_indices_from(P)] += self.config.force_weight * FORCE_UNIT**2
        rate_error, pose_error = self._free_errors(pose, rates, desired_rates, height)
        pull = self._rate_gain.T @ (rate_error * self._rate_weights)
        pull += self._pose_gain.T @ (pose_error * self._pose_weights)
        q = np.einsum("hal,ha->hl", G.reshape(H, 6, 12), pull).ravel()
        solution = self._solve(P[np.ix_(active, active)], q[active], standing)
        forces = np.zeros(H * 12)
        forces[active] = solution * FORCE_UNIT
        return forces[:12].reshape(4, 3)

    def _free_errors(self, pose: Array, rates: Array, desired: Array, height: float) -> tuple[Array, Array]:
        """Tracking errors [H, 6] of rates and pose if no foot pushed."""
        steps = np.arange(1, self.config.steps + 1)[:, None]
        t = steps * self.config.step_period
        rate = rates + t * GRAVITY - desired
        target = np.array([0.0, 0.0, 0.0, pose[3], pose[4], height]) + t * desired * [0, 0, 1, 1, 1, 0]
        return rate, pose + t * rates + 0.5 * t * t * GRAVITY - target

    def _solve(self, P: Array, q: Array, standing: NDArray[np.bool_]) -> Array:
        size = len(q)
        legs = size // 3
        # In most plans nothing binds: then the minimum of the cost alone is the answer.
        free = np.linalg.solve(P, -q)
        sides = free.reshape(legs, 3) @ self._pyramid.T
        if (sides >= self._low).all() and (sides <= self._high).all():
            return np.asarray(free)
        low, high = np.tile(self._low, legs), np.tile(self._high, legs)
        solver = self._solvers.get(size)
        if solver is None:
            solver = proxqp.dense.QP(size, 0, 5 * legs)
            solver.settings.eps_abs = self.config.accuracy
            solver.settings.initial_guess = proxqp.InitialGuess.NO_INITIAL_GUESS
            solver.init(P, q, None, None, np.kron(np.eye(legs), self._pyramid), low, high)
            self._solvers[size] = solver
        else:
            same = standing.tobytes() == self._last
            solver.settings.initial_guess = (
                proxqp.InitialGuess.WARM_START_WITH_PREVIOUS_RESULT
                if same
                else proxqp.InitialGuess.NO_INITIAL_GUESS
            )
            solver.update(H=P, g=q)
        self._last = standing.tobytes()
        solver.solve()
        return self._polished(P, q, low, high, np.asarray(solver.results.z))

    def _polished(self, P: Array, q: Array, low: Array, high: Array, multipliers: Array) -> Array:
        """The exact minimum on the constraints that the solver found active.

        ProxQP's last bits depend on where its buffers lie in memory; which constraints are active does not.
        """
        upper = multipliers > ACTIVE
        # Only the limit on f_z has a lower side; elsewhere a negative multiplier is the solver's residue.
        rows = np.flatnonzero(upper | ((multipliers < -ACTIVE) & (low > NO_BOUND)))
        size, count = len(q), len(rows)
        system = np.zeros((size + count, size + count))
        system[:size, :size] = P
        for place, row in enumerate(rows):
            leg = 3 * (row // 5)
            system[size + place, leg : leg + 3] = system[leg : leg + 3, size + place] = self._pyramid[row % 5]
        bounds = np.where(upper, high, low)[rows]
        right = np.concatenate([-q, bounds])
        if np.bincount(rows // 5, minlength=1).max() >= 3:
            # A force in a corner of its pyramid: its constraints may depend on one another.
            return np.linalg.lstsq(system, right, rcond=1e-10)[0][:size]
        return np.linalg.solve(system, right)[:size]
