"""The MPC of the stance legs in JAX: the QP of `control.stance` by a fixed number of iterations.

ADMM finds which constraints bind, and Newton steps on this active set give the exact minimum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular

from robopolicy.control.reading import Reading
from robopolicy.control.robot import WalkerConfig
from robopolicy.control.stance import FORCE_UNIT, GRAVITY
from robopolicy.envs.batched.dynamics import Array, skew
from robopolicy.envs.batched.walker import Clock

ADMM_STEPS, RHO = 20, 0.05
MOST_STEPS = 20  # on the active set; nearly all plans settle in one or two
EDGE = 1e-6  # in units of force: how near to an edge ADMM's result counts as on it
SLACK = 1e-7  # by how much a force may leave its pyramid before its side binds


class Body(NamedTuple):
    """The rigid body of the MPC: mass (kg), inverse inertia [3, 3] (1/(kg m^2)), centre of mass [3] (m)."""

    mass: Array
    inverse_inertia: Array
    center: Array


class Bounds(NamedTuple):
    """A friction pyramid: |x| and |y| at most `friction` times z, which lies in [low, high]."""

    friction: float
    low: Array
    high: Array


class Active(NamedTuple):
    """The sides that bind, [S] each: -1, 0 or 1 along x and y, and -1 (low), 0 or 1 (high) along z."""

    x: Array
    y: Array
    z: Array


def ground_forces(
    config: WalkerConfig,
    body: Body,
    reading: Reading,
    now: Clock,
    landings: Array,
    desired: Array,
    ground: Array,
) -> tuple[Array, Array]:
    """Ground reactions on the feet, [4, 3] (N, yaw frame), and whether the QP's active set has settled.

    landings: [4, 3] (m, world) of the feet in the air; desired: [2] (m/s); ground: height of the ground (m).
    """
    height = ground + config.height + body.center[2]
    quadratic, linear = cost(config, body, reading, now, landings, desired, height)
    share = body.mass * -GRAVITY / 4 / FORCE_UNIT
    low, high = (limit * share for limit in config.stance.force_limits)
    forces, has_settled = minimum(quadratic, linear, Bounds(config.stance.friction, low, high))
    return FORCE_UNIT * jnp.einsum("sl,sa->la", now.now, forces), has_settled


def cost(
    config: WalkerConfig,
    body: Body,
    reading: Reading,
    now: Clock,
    landings: Array,
    desired: Array,
    height: Array,
) -> tuple[Array, Array]:
    """P [3S, 3S] and q [3S] of the cost u.P u / 2 + q.u, for the forces u of S stances in FORCE_UNIT."""
    stance = config.stance
    offset = reading.base_to_yaw @ body.center
    spin = reading.angular_velocity
    rates = jnp.concatenate([spin, reading.velocity + jnp.cross(spin, offset)])
    zero = jnp.zeros_like(height)
    roll, pitch, yaw = reading.attitude
    pose = jnp.stack([roll, pitch, zero, zero, zero, reading.position[2] + offset[2]])
    wanted = jnp.stack([zero, zero, -config.heading * yaw, desired[0], desired[1], zero])
    k, j = np.arange(1, stance.steps + 1)[:, None], np.arange(stance.steps)
    # Tracking errors without ground forces, and the effect of an acceleration in step j after step k.
    time, fall = k * stance.step_period, np.array([0.0, 0.0, 0.0, 0.0, 0.0, GRAVITY])
    goal = jnp.stack([zero, zero, zero, zero, zero, height]) + time * wanted * np.array([0, 0, 1, 1, 1, 0])
    errors = (rates + time * fall - wanted, pose + time * rates + 0.5 * time**2 * fall - goal)
    gains = (stance.step_period * (j < k), stance.step_period**2 * (k - j - 0.5) * (j < k))
    weights = (np.array(stance.rate_weights), np.array(stance.pose_weights))
    coming = (landings - reading.position) @ reading.to_yaw.T
    feet = jnp.where(now.stands[:, None], reading.feet, coming) - offset
    shift = stance.step_period * jnp.stack([desired[0], desired[1], zero])
    arms = skew(feet[now.legs] - now.steps[:, None] * shift)
    straight = jnp.broadcast_to(jnp.eye(3, dtype=arms.dtype) / body.mass, arms.shape)
    effects = jnp.concatenate([body.inverse_inertia @ arms, straight], axis=1)
    effects = FORCE_UNIT * now.counts[:, None, None] * effects  # [S, 6, 3]
    quadratic = stance.force_weight * FORCE_UNIT**2 * jnp.eye(3 * len(now.steps), dtype=arms.dtype)
    linear = jnp.zeros(3 * len(now.steps), arms.dtype)
    for gain, weight, error in zip(gains, weights, errors, strict=True):
        pulls = jnp.einsum("kj,ka->ja", gain, error * weight)[now.steps]
        linear = linear + jnp.einsum("sar,sa->sr", effects, pulls).ravel()
        coupled = jnp.asarray(gain.T @ gain, arms.dtype)[now.steps][:, now.steps]
        rows = (effects * np.sqrt(weight)[:, None]).transpose(1, 0, 2).reshape(6, -1)
        quadratic = quadratic + jnp.kron(coupled, jnp.ones((3, 3), arms.dtype)) * (rows.T @ rows)
    return quadratic, linear


def minimum(quadratic: Array, linear: Array, bounds: Bounds) -> tuple[Array, Array]:
    """The forces [S, 3] of least cost inside `bounds`, and whether the active set has settled."""
    count = len(linear) // 3
    eye = jnp.eye(len(linear), dtype=linear.dtype)
    half = solve_triangular(cholesky(quadratic + RHO * eye, lower=True), eye, lower=True)
    inverse = half.T @ half  # so that an iteration is one product: triangular solves are slow on accelerators

    def admm(_: int, parts: tuple[Array, Array]) -> tuple[Array, Array]:
        inside, multipliers = parts
        free = (inverse @ ((RHO * inside - multipliers).ravel() - linear)).reshape(count, 3)
        inside = projected(free + multipliers / RHO, bounds)
        return inside, multipliers + RHO * (free - inside)

    zeros = jnp.zeros((count, 3), linear.dtype)
    inside, multipliers = lax.fori_loop(0, ADMM_STEPS, admm, (zeros, zeros))
    begun = (0, _binding(inside, multipliers, bounds), inside, jnp.array(False))

    def newton(parts: tuple[Array, Active, Array, Array]) -> tuple[Array, Active, Array, Array]:
        steps, active, _, _ = parts
        forces = _on(active, quadratic, linear, bounds)
        following = _following(active, forces, quadratic, linear, bounds)
        same = [jnp.all(a == b) for a, b in zip(active, following, strict=True)]
        return steps + 1, following, forces, jnp.stack(same).all()

    _, _, forces, has_settled = lax.while_loop(
        lambda parts: ~parts[3] & (parts[0] < MOST_STEPS), newton, begun
    )
    return forces, has_settled


def projected(forces: Array, bounds: Bounds) -> Array:
    """The nearest forces [S, 3] inside `bounds`."""
    mu = bounds.friction
    x, y, z = jnp.abs(forces[:, 0]), jnp.abs(forces[:, 1]), forces[:, 2]
    # The best height if no side binds, that of x, that of y, or both.
    by_x, by_y = (z + mu * x) / (1 + mu**2), (z + mu * y) / (1 + mu**2)
    by_both = (z + mu * (x + y)) / (1 + 2 * mu**2)
    height = jnp.where((y > mu * by_y) & (x <= mu * by_y), by_y, by_both)
    height = jnp.where((x > mu * by_x) & (y <= mu * by_x), by_x, height)
    height = jnp.where((x <= mu * z) & (y <= mu * z), z, height)
    height = jnp.clip(height, bounds.low, bounds.high)
    side = mu * height
    sides = (jnp.clip(forces[:, 0], -side, side), jnp.clip(forces[:, 1], -side, side))
    return jnp.stack([*sides, height], axis=1)


def _binding(forces: Array, multipliers: Array, bounds: Bounds) -> Active:
    """The sides that ADMM's forces lie on, with multipliers that push outwards."""
    z, sides = forces[:, 2], []
    for axis in range(2):
        sign = jnp.sign(forces[:, axis])
        is_on = jnp.abs(forces[:, axis]) >= bounds.friction * z - EDGE
        sides.append(jnp.where(is_on & (multipliers[:, axis] * sign > EDGE), sign, 0.0))
    push = multipliers[:, 2] + bounds.friction * (sides[0] * multipliers[:, 0] + sides[1] * multipliers[:, 1])
    low = jnp.where((z <= bounds.low + EDGE) & (push < -EDGE), -1.0, 0.0)
    return Active(sides[0], sides[1], jnp.where((z >= bounds.high - EDGE) & (push > EDGE), 1.0, low))


def _on(active: Active, quadratic: Array, linear: Array, bounds: Bounds) -> Array:
    """The forces [S, 3] of least cost on the sides that are active."""
    count, mu = len(active.x), bounds.friction
    free = jnp.stack([side == 0 for side in active], axis=1)
    slopes = jnp.stack([mu * active.x, mu * active.y, jnp.ones_like(active.z)], axis=1)
    # Free entries of a force, to the force: z carries x and y along on active sides.
    turn = jnp.eye(3, dtype=linear.dtype) * free[:, :, None]
    turn = turn.at[:, :, 2].set(slopes * free[:, 2:])
    fixed = jnp.where(free[:, 2], 0.0, jnp.where(active.z > 0, bounds.high, bounds.low))[:, None] * slopes
    blocks = quadratic.reshape(count, 3, count, 3)
    reduced = jnp.einsum("sai,satb,tbj->sitj", turn, blocks, turn).reshape(3 * count, 3 * count)
    reduced = reduced + jnp.diag(jnp.where(free.ravel(), 0.0, 1.0).astype(linear.dtype))
    pull = (linear + quadratic @ fixed.ravel()).reshape(count, 3)
    right = jnp.where(free, -jnp.einsum("sai,sa->si", turn, pull), 0.0)
    solution = cho_solve(cho_factor(reduced), right.ravel()).reshape(count, 3)
    return jnp.einsum("sai,si->sa", turn, solution) + fixed


def _following(active: Active, forces: Array, quadratic: Array, linear: Array, bounds: Bounds) -> Active:
    """The next active set: without sides that pull inwards, with sides that the forces cross."""
    gradient = (quadratic @ forces.ravel() + linear).reshape(forces.shape)
    z, mu, sides = forces[:, 2], bounds.friction, []
    for axis, side in enumerate((active.x, active.y)):
        kept = jnp.where(-gradient[:, axis] * side > 0, side, 0.0)
        is_out = jnp.abs(forces[:, axis]) > mu * z + SLACK
        sides.append(jnp.where(side != 0, kept, jnp.where(is_out, jnp.sign(forces[:, axis]), 0.0)))
    along = gradient[:, 2] + mu * (active.x * gradient[:, 0] + active.y * gradient[:, 1])
    kept = jnp.where(-along * active.z > 0, active.z, 0.0)
    crossed = jnp.where(z > bounds.high + SLACK, 1.0, jnp.where(z < bounds.low - SLACK, -1.0, 0.0))
    return Active(sides[0], sides[1], jnp.where(active.z != 0, kept, crossed))
