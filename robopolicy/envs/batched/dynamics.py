"""Rigid-body dynamics of a quadruped in JAX: what MuJoCo computes for the same model.

A floating base carries four legs of three hinges. The mass matrix has the blocks base, leg, and base with
leg, but none of a leg with another leg, so a system is solved through the Schur complement of the legs'
blocks. Velocities are MuJoCo's: those of the base's origin in the world frame, and its spin in base axes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve

Array = Any  # of JAX, or of NumPy before it reaches a device

LINKS = 3  # of a leg
GRAVITY = np.array([0.0, 0.0, -9.81])  # m/s^2
_MOVES = np.tri(LINKS, dtype=bool)[None, :, :, None]  # [., link, joint, .]: the joint moves the link


class Model(NamedTuple):
    """Masses (kg), inertias (kg m^2, about the centre of mass) and frames (m) of a robot.

    Attributes:
      base_mass: [], base_com: [3], base_inertia: [3, 3], in base axes.
      places, turns: [4, 3, 3] and [4, 3, 3, 3], the frame of each link in that of the link before it.
      axes: [4, 3, 3], of each hinge in its link's frame.
      masses, coms, inertias: [4, 3], [4, 3, 3] and [4, 3, 3, 3], of the links in their frames.
      toes: [4, 3], centre of each toe in the last link's frame.
      compliance: [4] (1/kg), inverse mass that a push at the toe meets (MuJoCo's body_invweight0).
    """

    base_mass: Array
    base_com: Array
    base_inertia: Array
    places: Array
    turns: Array
    axes: Array
    masses: Array
    coms: Array
    inertias: Array
    toes: Array
    compliance: Array


class State(NamedTuple):
    """Pose and velocity.

    Attributes:
      position: [3] (m, world). quaternion: [4] (w, x, y, z). joints: [4, 3] (rad).
      velocity: [3] (m/s, world). spin: [3] (rad/s, base axes). rates: [4, 3] (rad/s).
    """

    position: Array
    quaternion: Array
    joints: Array
    velocity: Array
    spin: Array
    rates: Array


class Chain(NamedTuple):
    """Where the links are: places relative to the base's origin in world axes.

    Attributes:
      rotation: [3, 3], base to world. origins, axes, coms: [4, 3, 3]. inertias: [4, 3, 3, 3]. toes: [4, 3].
    """

    rotation: Array
    origins: Array
    axes: Array
    coms: Array
    inertias: Array
    toes: Array


class Motion(NamedTuple):
    """Mass matrix and bias forces: `base` [6, 6], `coupling` [4, 6, 3], `legs` [4, 3, 3]; [6] and [4, 3]."""

    base: Array
    coupling: Array
    legs: Array
    base_bias: Array
    leg_bias: Array


def matrix(quaternion: Array) -> Array:
    """The rotation [3, 3] of a quaternion (w, x, y, z)."""
    w, x, y, z = quaternion
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.array(rows)


def skew(vectors: Array) -> Array:
    """Matrices [..., 3, 3] that take the cross product with `vectors` [..., 3]."""
    x, y, z = vectors[..., 0], vectors[..., 1], vectors[..., 2]
    zero = jnp.zeros_like(x)
    rows = [[zero, -z, y], [z, zero, -x], [-y, x, zero]]
    return jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)


def chain(model: Model, quaternion: Array, joints: Array) -> Chain:
    """Forward kinematics."""
    rotation = matrix(quaternion)
    turn, place = jnp.broadcast_to(rotation, (4, 3, 3)), jnp.zeros((4, 3), joints.dtype)
    links: list[tuple[Array, ...]] = []
    for k in range(LINKS):
        place = place + jnp.einsum("lab,lb->la", turn, model.places[:, k])
        turn = turn @ model.turns[:, k]
        axis = jnp.einsum("lab,lb->la", turn, model.axes[:, k])
        across, angle = skew(model.axes[:, k]), joints[:, k, None, None]
        turn = turn + turn @ (jnp.sin(angle) * across + (1 - jnp.cos(angle)) * (across @ across))
        com = place + jnp.einsum("lab,lb->la", turn, model.coms[:, k])
        links.append((place, axis, com, turn @ model.inertias[:, k] @ jnp.swapaxes(turn, 1, 2)))
    toes = place + jnp.einsum("lab,lb->la", turn, model.toes)
    origins, axes, coms, inertias = (jnp.stack(parts, axis=1) for parts in zip(*links, strict=True))
    return Chain(rotation, origins, axes, coms, inertias, toes)


def motion(model: Model, links: Chain, state: State) -> Motion:
    """The mass matrix, and the forces that keep all accelerations at zero."""
    rotation, coms = links.rotation, links.coms
    arms = coms[:, :, None] - links.origins[:, None]
    turning = jnp.where(_MOVES, links.axes[:, None], 0.0)  # [leg, link, joint, 3]
    moving = jnp.cross(turning, arms)
    momentum = model.masses[:, :, None, None] * moving
    inner = jnp.einsum("lbxy,lbjy->lbjx", links.inertias, turning)
    legs = jnp.einsum("lbix,lbjx->lij", momentum, moving) + jnp.einsum("lbix,lbjx->lij", turning, inner)
    about_base = jnp.cross(coms[:, :, None], momentum) + inner
    coupling = jnp.concatenate(
        [jnp.swapaxes(momentum.sum(1), 1, 2), jnp.einsum("xa,ljx->laj", rotation, about_base.sum(1))], axis=1
    )
    base_com, base_inertia = rotation @ model.base_com, rotation @ model.base_inertia @ rotation.T
    masses = jnp.append(model.masses.ravel(), model.base_mass)
    places = jnp.concatenate([coms.reshape(-1, 3), base_com[None]])
    eye = jnp.eye(3, dtype=rotation.dtype)
    lever = skew(masses @ places) @ rotation
    inertia = links.inertias.sum((0, 1)) + base_inertia + masses @ (places**2).sum(1) * eye
    inertia = inertia - jnp.einsum("n,nx,ny->xy", masses, places, places)
    base = jnp.block([[masses.sum() * eye, -lever], [-lever.T, rotation.T @ inertia @ rotation]])
    spin = rotation @ state.spin
    force = model.base_mass * (jnp.cross(spin, jnp.cross(spin, base_com)) - jnp.asarray(GRAVITY, spin.dtype))
    moment = jnp.cross(spin, base_inertia @ spin) + jnp.cross(base_com, force)
    forces, moments = _inertial(model, links, state, spin)
    leg_bias = jnp.einsum("lbjx,lbx->lj", moving, forces) + jnp.einsum("lbjx,lbx->lj", turning, moments)
    moment = moment + (moments + jnp.cross(coms, forces)).sum((0, 1))
    base_bias = jnp.concatenate([force + forces.sum((0, 1)), rotation.T @ moment])
    return Motion(base, coupling, legs, base_bias, leg_bias)


def _inertial(model: Model, links: Chain, state: State, spin: Array) -> tuple[Array, Array]:
    """Forces and moments [4, 3, 3] on the links when base and joints keep their rates, gravity included."""
    omega = jnp.broadcast_to(spin, (4, 3))
    alpha = origin = jnp.zeros((4, 3), spin.dtype)
    acceleration = jnp.broadcast_to(jnp.asarray(-GRAVITY, spin.dtype), (4, 3))
    forces, moments = [], []

    def at(arm: Array) -> Array:
        return acceleration + jnp.cross(alpha, arm) + jnp.cross(omega, jnp.cross(omega, arm))

    for k in range(LINKS):
        acceleration = at(links.origins[:, k] - origin)
        origin, turn = links.origins[:, k], links.axes[:, k] * state.rates[:, k, None]
        alpha, omega = alpha + jnp.cross(omega, turn), omega + turn
        inertia = links.inertias[:, k]
        forces.append(model.masses[:, k, None] * at(links.coms[:, k] - origin))
        spun = jnp.einsum("lxy,ly->lx", inertia, omega)
        moments.append(jnp.einsum("lxy,ly->lx", inertia, alpha) + jnp.cross(omega, spun))
    return jnp.stack(forces, axis=1), jnp.stack(moments, axis=1)


def solve(
    base: Array, coupling: Array, legs: Array, base_right: Array, leg_right: Array
) -> tuple[Array, Array]:
    """The solution [6], [4, 3] of a system with the blocks of a mass matrix."""
    inverse = _inverse(legs)
    folded = coupling @ inverse
    schur = base - jnp.einsum("laj,lbj->ab", folded, coupling)
    solution = cho_solve(cho_factor(schur), base_right - jnp.einsum("laj,lj->a", folded, leg_right))
    rest = leg_right - jnp.einsum("laj,a->lj", coupling, solution)
    return solution, jnp.einsum("lij,lj->li", inverse, rest)


def _inverse(matrices: Array) -> Array:
    """Inverses of matrices [..., 3, 3]."""
    a, b, c = matrices[..., 0, :], matrices[..., 1, :], matrices[..., 2, :]
    columns = jnp.stack([jnp.cross(b, c), jnp.cross(c, a), jnp.cross(a, b)], axis=-1)
    return columns / (a * columns[..., 0]).sum(-1)[..., None, None]


def product(terms: Motion, base: Array, legs: Array) -> tuple[Array, Array]:
    """The mass matrix times a vector [6], [4, 3]."""
    return (
        terms.base @ base + jnp.einsum("laj,lj->a", terms.coupling, legs),
        jnp.einsum("laj,a->lj", terms.coupling, base) + jnp.einsum("lij,lj->li", terms.legs, legs),
    )


def turned(quaternion: Array, rotation: Array) -> Array:
    """`quaternion` after a turn by a rotation vector [3] (rad) in its own axes."""
    angle = jnp.sqrt(rotation @ rotation)
    w = jnp.cos(angle / 2)
    v = rotation * (jnp.sin(angle / 2) / jnp.where(angle > 0, angle, 1.0))
    real = quaternion[0] * w - quaternion[1:] @ v
    rest = quaternion[0] * v + w * quaternion[1:] + jnp.cross(quaternion[1:], v)
    out = jnp.concatenate([real[None], rest])
    return out / jnp.sqrt(out @ out)
