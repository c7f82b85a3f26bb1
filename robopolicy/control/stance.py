"""Stance legs: convex model-predictive control of ground forces (Di Carlo et al., 2018).

The model is one rigid body whose attitude stays near level, in the yaw frame, so that attitude rates are
angular velocities. With accelerations a_j = G_j u_j + g over steps of dt,

    velocity_k = velocity_0 + dt sum_{j<k} a_j
    pose_k     = pose_0 + k dt velocity_0 + dt^2 sum_{j<k} (k - j - 1/2) a_j

and the quadratic cost of tracking a reference becomes a dense QP in the forces u of the legs that the gait
schedules to stand, each inside its own friction pyramid. DAQP solves it, a dual active-set method (Arnstrom
et al., 2022): its result depends on the problem alone, so the same plan gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import daqp
import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.state import Array
from robopolicy.naming import shown
from robopolicy.settings import check_count, check_interval, check_number

FORCE_UNIT = 100.0  # N: scales the solver's variables to about one
NO_BOUND = -1e30  # DAQP's
SOLVED = 1
GRAVITY = -9.81  # m/s^2


@dataclass(frozen=True)
class StanceConfig:
    """Weights on (roll, pitch, yaw, x, y, z) and on their rates.

    They are the published ones for the Laikago, except for larger ones of yaw: with 0.2 and 1 the walker
    drifted off the stones within 8 m. `friction` is below the simulated coefficient, as a margin.
    """

    steps: int = 6
    step_period: float = 0.04  # s
    pose_weights: tuple[float, ...] = (5.0, 5.0, 20.0, 0.0, 0.0, 10.0)
    rate_weights: tuple[float, ...] = (0.0, 0.0, 5.0, 1.0, 1.0, 1.0)
    force_weight: float = 1e-6
    grip: float = 0.0  # N s/m, force on a standing foot against its velocity: it brakes a foot that slides
    friction: float = 0.45
    force_limits: tuple[float, float] = (0.1, 10.0)  # of one leg's f_z, in body weights / 4
    accuracy: float = 1e-9  # FORCE_UNIT, by which a force may be outside its pyramid

    def __post_init__(self) -> None:
        check_count("steps", self.steps, 1, 100)
        for name in ("pose_weights", "rate_weights"):
            weights = getattr(self, name)
            if not isinstance(weights, list | tuple) or len(weights) != 6:  # compiled code reads six
                raise ValueError(f"{name} is {shown(weights)}: it must be 6 numbers")
            for weight in weights:
                check_number(name, weight, 0.0)
        for name, low, high in (
            *(("step_period", 0.001, 1.0), ("force_weight", 1e-12, 1.0), ("grip", 0.0, 1e3)),
            *(("friction", 0.01, 2.0), ("accuracy", 0.0, 1e-3)),
        ):
            check_number(name, getattr(self, name), low, high)
        check_interval("force_limits", self.force_limits, 0.0, 1e3)


class Plan(NamedTuple):
    """What the MPC tracks over H steps, in the yaw frame.

    pose: roll, pitch, yaw error (rad), and x, y, z (m) of the centre of mass, [6]; rates: angular (rad/s) and
    linear (m/s) velocity, [6]; desired_rates: [6]; height: desired z (m); feet: [H, 4, 3] (m) relative to the
    centre of mass; standing: [H, 4].
    """

    pose: Array
    rates: Array
    desired_rates: Array
    height: float
    feet: Array
    standing: NDArray[np.bool_]


class ConvexMPC:
    """Computes the present ground forces from a plan over `steps` periods."""

    def __init__(self, mass: float, inertia: Array, config: StanceConfig) -> None:
        """`mass` (kg) and `inertia` [3, 3] (kg m^2, about the centre of mass, base axes)."""
        self.config = config
        self._mass = mass
        self._inverse_inertia = np.asarray(np.linalg.inv(inertia), np.float64)
        H, dt = config.steps, config.step_period
        k = np.arange(1, H + 1)[:, None]
        j = np.arange(H)[None, :]
        # Effect of an acceleration in step j on the rates and on the pose after step k.
        self._gains = np.stack([dt * (j < k), dt * dt * (k - j - 0.5) * (j < k)])
        self._weights = np.array([config.rate_weights, config.pose_weights])
        self._pyramid = np.array(
            [[s * (1 - a), s * a, -config.friction] for a in (0, 1) for s in (1.0, -1.0)] + [[0.0, 0.0, 1.0]]
        )
        weight_share = mass * 9.81 / 4 / FORCE_UNIT
        self._low = np.array([NO_BOUND] * 4 + [config.force_limits[0] * weight_share])
        self._high = np.array([0.0] * 4 + [config.force_limits[1] * weight_share])

    def forces(self, plan: Plan) -> Array:
        """Present ground reaction on each foot, [4, 3] (N), yaw frame; zero for swing legs.

        Raises ArithmeticError if DAQP finds none.
        """
        solution = self._solve(*self.quadratic(plan))
        forces = np.zeros((4, 3))
        now = int(plan.standing[0].sum())
        forces[plan.standing[0]] = FORCE_UNIT * solution[: 3 * now].reshape(now, 3)
        return forces

    def quadratic(self, plan: Plan) -> tuple[Array, Array]:
        """P [3n, 3n] and q [3n] of the cost u.P u / 2 + q.u that `forces` minimises.

        u holds the forces of the n standing legs, step by step, in FORCE_UNIT.
        """
        P, q = _condensed(
            plan,
            self._inverse_inertia,
            self._mass,
            self._gains,
            self._weights,
            self.config.step_period,
            self.config.force_weight * FORCE_UNIT**2,
        )
        return P, q

    def _solve(self, P: Array, q: Array) -> Array:
        # In most plans no constraint is active: then the unconstrained minimum is the solution.
        free, feasible = _unconstrained(P, q, self.config.friction, self._low[-1], self._high[-1])
        if feasible:
            return np.asarray(free)
        legs = len(q) // 3
        pyramids = np.kron(np.eye(legs), self._pyramid)
        low, high = np.tile(self._low, legs), np.tile(self._high, legs)
        solution, _, flag, _ = daqp.solve(P, q, pyramids, high, low, primal_tol=self.config.accuracy)
        if flag != SOLVED:
            raise ArithmeticError(f"the MPC found no ground forces: DAQP ended with {flag}")
        return np.asarray(solution)


@numba.njit(cache=True)
def _condensed(
    plan: Plan,
    inverse_inertia: Array,
    mass: float,
    gains: Array,
    weights: Array,
    period: float,
    regulariser: float,
) -> tuple[Array, Array]:
    """See `ConvexMPC.quadratic`.

    gains: [2, H, H], of accelerations on rates and pose; weights: [2, 6], of rates and pose.
    """
    pose, rates, desired, height, feet, standing = plan
    H = len(standing)
    # Tracking errors without ground forces, and the weighted sums that act on each step's acceleration.
    errors, pulls = np.empty((2, H, 6)), np.zeros((2, H, 6))
    for k in range(H):
        t = (k + 1) * period
        for a in range(6):
            fall = GRAVITY if a == 5 else 0.0
            errors[0, k, a] = rates[a] + t * fall - desired[a]
            # The targets of roll and pitch are zero, of yaw, x and y the desired motion, of z the height.
            target = 0.0 if a < 3 else height if a == 5 else pose[a]
            if 2 <= a < 5:
                target += t * desired[a]
            errors[1, k, a] = pose[a] + t * rates[a] + 0.5 * t * t * fall - target
    couplings = np.zeros((2, H, H))
    for kind in range(2):
        for k in range(H):
            for i in range(H):
                for a in range(6):
                    pulls[kind, i, a] += gains[kind, k, i] * weights[kind, a] * errors[kind, k, a]
                for j in range(H):
                    couplings[kind, i, j] += gains[kind, k, i] * gains[kind, k, j]
    count = 0
    steps, blocks = np.empty(4 * H, np.int64), np.zeros((4 * H, 6, 3))
    for h in range(H):
        for leg in range(4):
            if standing[h, leg]:
                x, y, z = feet[h, leg, 0], feet[h, leg, 1], feet[h, leg, 2]
                for a in range(3):
                    row = inverse_inertia[a]
                    blocks[count, a, 0] = (row[1] * z - row[2] * y) * FORCE_UNIT
                    blocks[count, a, 1] = (row[2] * x - row[0] * z) * FORCE_UNIT
                    blocks[count, a, 2] = (row[0] * y - row[1] * x) * FORCE_UNIT
                    blocks[count, 3 + a, a] = FORCE_UNIT / mass
                steps[count] = h
                count += 1
    P, q = np.empty((3 * count, 3 * count)), np.zeros(3 * count)
    for i in range(count):
        for r in range(3):
            for a in range(6):
                pull = pulls[0, steps[i], a] + pulls[1, steps[i], a]
                q[3 * i + r] += blocks[i, a, r] * pull
        for j in range(i + 1):
            rate, place = couplings[0, steps[i], steps[j]], couplings[1, steps[i], steps[j]]
            for r in range(3):
                for c in range(3):
                    total = regulariser if i == j and r == c else 0.0
                    for a in range(6):
                        weight = rate * weights[0, a] + place * weights[1, a]
                        total += weight * blocks[i, a, r] * blocks[j, a, c]
                    P[3 * i + r, 3 * j + c] = P[3 * j + c, 3 * i + r] = total
    return P, q


@numba.njit(cache=True)
def _unconstrained(P: Array, q: Array, friction: float, low: float, high: float) -> tuple[Any, bool]:
    """The unconstrained minimum, and whether its forces are in their friction pyramids and limits."""
    forces = np.linalg.solve(P, -q)
    for i in range(0, len(forces), 3):
        x, y, z = forces[i], forces[i + 1], forces[i + 2]
        if not (low <= z <= high and abs(x) <= friction * z and abs(y) <= friction * z):
            return forces, False
    return forces, True
