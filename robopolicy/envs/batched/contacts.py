"""A physics step with the toes' contacts: MuJoCo's convex contacts, pyramidal friction and servos.

Contact forces minimise MuJoCo's primal cost, a convex and piecewise quadratic function of the accelerations.
Newton's method with an exact line search reaches the minimum in a few iterations.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.batched.dynamics import (
    Array,
    Chain,
    Model,
    Motion,
    State,
    chain,
    motion,
    product,
    solve,
    turned,
)
from robopolicy.envs.physics.mujoco import MujocoConfig

FOOT_RADIUS = LAIKAGO.foot_radius
ITERATIONS = 6  # of Newton's method


class Drive(NamedTuple):
    """Commands of the joints in a control period, and a push.

    Attributes:
      targets: [4, 3] (rad) of the joints that are `held` [4, 3]; torques: [4, 3] (N m) of the others.
      push: [3] (N, world), at the base's centre of mass.
    """

    targets: Array
    torques: Array
    held: Array
    push: Array


class Contacts(NamedTuple):
    """The four edges of the friction pyramid at each toe.

    Attributes:
      base, leg: [4, 4, 6] and [4, 4, 3], the Jacobians. stiffness: [4, 4], zero without a contact.
      target: [4, 4], the acceleration that a contact asks for.
    """

    base: Array
    leg: Array
    stiffness: Array
    target: Array


def nearest(boxes: Array, points: Array) -> Array:
    """The row of `boxes` [B, 8] that is nearest to each point [4, 3]: [4, 8].

    A row holds centre, half extents (m), and cosine and sine of the yaw.
    """
    over = jnp.abs(_local(boxes[None], points[:, None])) - boxes[None, :, 3:6]
    gap = jnp.sum(jnp.maximum(over, 0.0) ** 2, axis=-1) + jnp.minimum(over.max(-1), 0.0)
    return boxes[jnp.argmin(gap, axis=1)]


def _local(boxes: Array, points: Array) -> Array:
    """`points` [..., 3] in the frames of `boxes` [..., 8]."""
    x, y, z = (points[..., k] - boxes[..., k] for k in range(3))
    c, s = boxes[..., 6], boxes[..., 7]
    return jnp.stack([c * x + s * y, c * y - s * x, z], axis=-1)


def touching(
    model: Model, links: Chain, state: State, boxes: Array, friction: Array, config: MujocoConfig
) -> Contacts:
    """The contacts of each toe with its box, a row of `boxes` [4, 8]."""
    centers = state.position + links.toes
    local, half = _local(boxes, centers), boxes[:, 3:6]
    gap = local - jnp.clip(local, -half, half)
    length = jnp.sqrt(jnp.sum(gap**2, axis=-1))
    is_outside, depth = length > 0, half - jnp.abs(local)
    # A toe whose centre is inside of a box leaves through the nearest face.
    face = jax.nn.one_hot(jnp.argmin(depth, -1), 3, dtype=local.dtype) * jnp.where(local < 0, -1.0, 1.0)
    out = jnp.where(is_outside[:, None], gap / jnp.where(is_outside, length, 1.0)[:, None], face)
    distance = jnp.where(is_outside, length, -depth.min(-1)) - FOOT_RADIUS
    c, s = boxes[:, 6], boxes[:, 7]
    # MuJoCo's normal points from the toe to the box.
    normal = -jnp.stack([c * out[:, 0] - s * out[:, 1], s * out[:, 0] + c * out[:, 1], out[:, 2]], axis=-1)
    aside = jnp.where(jnp.abs(normal[:, 1:2]) < 0.5, jnp.array([0.0, 1.0, 0.0]), jnp.array([0.0, 0.0, 1.0]))
    first = aside - jnp.sum(aside * normal, axis=-1, keepdims=True) * normal
    first = first / jnp.sqrt(jnp.sum(first**2, axis=-1, keepdims=True))
    second = jnp.cross(normal, first)
    sides = friction * jnp.stack([first, -first, second, -second], axis=1)
    edges = normal[:, None] + sides
    arm = links.toes + normal * (FOOT_RADIUS + distance / 2)[:, None]
    base = -jnp.concatenate([edges, jnp.cross(arm[:, None], edges) @ links.rotation], axis=-1)
    reach = jnp.cross(links.axes, arm[:, None] - links.origins)
    leg = -jnp.einsum("lex,ljx->lej", edges, reach)
    softness, time = config.contact_impedance, config.contact_time
    regularizer = 2 * friction**2 * (1 - softness) / softness * model.compliance * (1 + friction**2)
    stiffness = jnp.where(distance < 0, 1 / regularizer, 0.0)[:, None] * jnp.ones((4, 4), local.dtype)
    speed = _at_edges(base, leg, jnp.concatenate([state.velocity, state.spin]), state.rates)
    target = -2 / (softness * time) * speed - (distance / (softness * time**2))[:, None]
    return Contacts(base, leg, stiffness, target)


def _at_edges(base: Array, leg: Array, base_vector: Array, leg_vector: Array) -> Array:
    return base @ base_vector + jnp.einsum("lej,lj->le", leg, leg_vector)


def _pushed(contacts: Contacts, forces: Array) -> tuple[Array, Array]:
    """Generalised forces [6], [4, 3] of forces [4, 4] along the edges."""
    return jnp.einsum("lea,le->a", contacts.base, forces), jnp.einsum("lej,le->lj", contacts.leg, forces)


def contact_forces(terms: Motion, contacts: Contacts, free: tuple[Array, Array]) -> Array:
    """Forces [4, 4] along the edges, for the accelerations `free` without contacts."""
    stiffness = contacts.stiffness

    def excess_of(base: Array, legs: Array) -> Array:
        return _at_edges(contacts.base, contacts.leg, base, legs) - contacts.target

    def improved(parts: tuple[Array, Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array, Array]:
        count, base, legs, excess, _ = parts
        active = jnp.where(excess < 0, stiffness, 0.0)
        inertial = product(terms, base - free[0], legs - free[1])
        pushes = _pushed(contacts, active * excess)
        step = solve(
            terms.base + jnp.einsum("le,lea,leb->ab", active, contacts.base, contacts.base),
            terms.coupling + jnp.einsum("le,lea,lej->laj", active, contacts.base, contacts.leg),
            terms.legs + jnp.einsum("le,lei,lej->lij", active, contacts.leg, contacts.leg),
            -(inertial[0] + pushes[0]),
            -(inertial[1] + pushes[1]),
        )
        curved = product(terms, *step)
        slope = step[0] @ inertial[0] + jnp.sum(step[1] * inertial[1])
        curvature = step[0] @ curved[0] + jnp.sum(step[1] * curved[1])
        change = _at_edges(contacts.base, contacts.leg, *step)
        size = _lowest(excess.ravel(), change.ravel(), stiffness.ravel(), slope, curvature)
        base, legs = base + size * step[0], legs + size * step[1]
        excess = excess_of(base, legs)
        # The cost is quadratic while the same edges push, so a whole step within it ends at the minimum.
        is_least = jnp.all(jnp.where(excess < 0, stiffness, 0.0) == active)
        return count + 1, base, legs, excess, is_least

    begun = (jnp.array(0), *free, excess_of(*free), jnp.array(False))
    *_, excess, _ = lax.while_loop(lambda parts: ~parts[4] & (parts[0] < ITERATIONS), improved, begun)
    return jnp.where(excess < 0, -stiffness * excess, 0.0)


def _lowest(excess: Array, change: Array, stiffness: Array, slope: Array, curvature: Array) -> Array:
    """The t >= 0 with the least cost on a line; edges [E] push where excess + t change is negative."""
    is_moving = change != 0
    kinks = jnp.where(is_moving, -excess / jnp.where(is_moving, change, 1.0), -1.0)
    reached = excess + kinks[:, None] * change
    pushes = jnp.where(reached < 0, stiffness * reached * change, 0.0).sum(-1)
    is_rising = slope + kinks * curvature + pushes > 0
    low = jnp.max(jnp.where((kinks > 0) & ~is_rising, kinks, 0.0))
    high = jnp.min(jnp.where((kinks > 0) & is_rising, kinks, jnp.inf))
    between = jnp.where(jnp.isfinite(high), (low + high) / 2, low + 1.0)
    active = jnp.where(excess + between * change < 0, stiffness, 0.0)
    slope = slope + jnp.sum(active * excess * change)
    curvature = curvature + jnp.sum(active * change**2)
    is_curved = curvature > 0
    return jnp.where(is_curved, jnp.maximum(-slope / jnp.where(is_curved, curvature, 1.0), 0.0), 0.0)


def step(
    model: Model,
    state: State,
    boxes: Array,
    drive: Drive,
    friction: Array,
    strength: Array,
    config: MujocoConfig,
) -> State:
    """The state after one physics step on `boxes` [B, 8], as of MuJoCo's integrator `implicitfast`.

    friction: coefficient between toes and boxes. strength: share of the torques that motors deliver.
    """
    period = config.control_period / config.substeps
    links = chain(model, state.quaternion, state.joints)
    terms = motion(model, links, state)
    near = nearest(boxes, state.position + links.toes)
    contacts = touching(model, links, state, near, friction, config)
    limit = config.motor_torque * strength
    asked = config.stiffness * (drive.targets - state.joints) - config.damping * state.rates
    motors = jnp.where(drive.held, jnp.clip(asked, -limit, limit), strength * drive.torques)
    # A motor at its limit does not damp.
    damping = jnp.where(drive.held & (jnp.abs(asked) < limit), config.damping, 0.0)
    twist = links.rotation.T @ jnp.cross(links.rotation @ model.base_com, drive.push)
    base, legs = jnp.concatenate([drive.push, twist]) - terms.base_bias, motors - terms.leg_bias
    free = solve(terms.base, terms.coupling, terms.legs, base, legs)
    pushes = _pushed(contacts, contact_forces(terms, contacts, free))
    damped = terms.legs + period * damping[:, :, None] * jnp.eye(3, dtype=damping.dtype)
    change = solve(terms.base, terms.coupling, damped, base + pushes[0], legs + pushes[1])
    velocity, spin = state.velocity + period * change[0][:3], state.spin + period * change[0][3:]
    rates = state.rates + period * change[1]
    return State(
        state.position + period * velocity,
        turned(state.quaternion, period * spin),
        state.joints + period * rates,
        velocity,
        spin,
        rates,
    )
