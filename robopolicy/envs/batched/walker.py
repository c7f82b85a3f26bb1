"""The low level of the walker in JAX: readings, the gait's clock, and the commands of a control period.

Formulas and numbers are those of `control` with the Laikago, which has their reasons.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from robopolicy.control import gait
from robopolicy.control.kinematics import BALLS, LEGS, limbs
from robopolicy.control.reading import Reading
from robopolicy.control.robot import WalkerConfig
from robopolicy.control.robots import LAIKAGO
from robopolicy.envs.batched.contacts import Drive
from robopolicy.envs.batched.dynamics import Array, State, matrix

HIPS, SIDE, LATERAL, LEG_PLANE, THIGH, THIGH_ANGLE, SHANK, SHANK_ANGLE, _ = LAIKAGO.legs
SWAY = np.array(LAIKAGO.trot.sway)


class Clock(NamedTuple):
    """What the time alone decides in control periods, [T, ...]: all worlds share it.

    Attributes:
      stands, touches, lifts: [T, 4]. replans: [T]. ramp: [T], share of the commanded speed.
      spent: [T, 4] (s), since the last lift-off, at the period's end.
      steps, legs, counts: [T, S], step and leg of each of at most S stances in a plan; `counts` is 0 for a
        filler.
      now: [T, S, 4], one for the leg of each stance in a plan's first step.
    """

    stands: Array
    touches: Array
    lifts: Array
    replans: Array
    ramp: Array
    spent: Array
    steps: Array
    legs: Array
    counts: Array
    now: Array


def clock(config: WalkerConfig, ticks: int) -> Clock:
    """The clock of an episode of `ticks` control periods, in NumPy."""
    trot, stance = config.gait, config.stance
    times = np.arange(ticks) * config.control_period
    coming = np.arange(stance.steps) * stance.step_period
    plans = [[gait.standing(time + later, trot.period, trot.swing) for later in coming] for time in times]
    stances = [np.argwhere(plan) for plan in plans]
    most = max(map(len, stances))
    steps, legs, counts = np.zeros((3, ticks, most), int)
    now = np.zeros((ticks, most, len(LEGS)))
    for tick, places in enumerate(stances):
        count = len(places)
        steps[tick, :count], legs[tick, :count] = places.T
        counts[tick, :count] = 1
        now[tick, np.arange(count), legs[tick, :count]] = steps[tick, :count] == 0
    stands = np.array([plan[0] for plan in plans])
    stood = np.concatenate([np.ones((1, len(LEGS)), bool), stands[:-1]])
    return Clock(
        stands,
        stands & ~stood,
        stood & ~stands,
        (stands != stood).any(axis=1) | (np.arange(ticks) % config.replan_every == 0),
        np.minimum(1.0, times / config.ramp),
        np.array([gait.cycle(time + config.control_period, trot.period) for time in times]),
        steps,
        legs,
        counts,
        now,
    )


def read(state: State) -> Reading:
    """The reading of `state`."""
    rotation = matrix(state.quaternion)
    attitude = jnp.stack(
        [
            jnp.arctan2(rotation[2, 1], rotation[2, 2]),
            -jnp.arcsin(jnp.clip(rotation[2, 0], -1.0, 1.0)),
            jnp.arctan2(rotation[1, 0], rotation[0, 0]),
        ]
    )
    c, s = jnp.cos(attitude[2]), jnp.sin(attitude[2])
    zero = jnp.zeros_like(c)
    to_yaw = jnp.array([[c, s, zero], [-s, c, zero], [zero, zero, zero + 1]])
    base_to_yaw = to_yaw @ rotation
    feet = _legs(state.joints)[0] @ base_to_yaw.T
    feet_world = state.position + feet @ to_yaw
    parts: list[Array] = [
        state.position,
        state.joints,
        state.rates,
        attitude,
        to_yaw,
        base_to_yaw,
        to_yaw @ state.velocity,
        base_to_yaw @ state.spin,
        feet,
        HIPS @ base_to_yaw.T,
        feet_world,
        jnp.maximum(jnp.abs(attitude[0]), jnp.abs(attitude[1])),
        feet_world[:, 2].min(),
    ]
    return Reading(*parts)


def _legs(joints: Array) -> tuple[Array, Array, Array, Array]:
    """Toes [4, 3] (m, base frame), and the angles of abduction, thigh and shank [4] (rad)."""
    roll, thigh = SIDE * joints[:, 0], joints[:, 1] + THIGH_ANGLE
    shank = joints[:, 1] + joints[:, 2] + SHANK_ANGLE
    x = -THIGH * jnp.sin(thigh) - SHANK * jnp.sin(shank)
    down = -THIGH * jnp.cos(thigh) - SHANK * jnp.cos(shank)
    c, s = jnp.cos(roll), jnp.sin(roll)
    toes = jnp.stack([x, c * LEG_PLANE - s * down, s * LEG_PLANE + c * down], axis=1)
    return HIPS + toes, roll, thigh, shank


def leg_balls(joints: Array) -> Array:
    """As `kinematics.leg_balls`."""
    toes, roll, thigh, _ = _legs(joints)
    c, s = jnp.cos(roll), jnp.sin(roll)
    zero, drop = jnp.zeros_like(c), THIGH * jnp.cos(thigh)
    planes = HIPS + LEG_PLANE[:, None] * jnp.stack([zero, c, s], axis=1)
    knees = planes + jnp.stack([-THIGH * jnp.sin(thigh), drop * s, -drop * c], axis=1)
    return jnp.concatenate(limbs(planes, knees, toes)).reshape(BALLS, 3)


def jacobians(joints: Array) -> Array:
    """d(toe)/d(joints), [4, 3, 3], in the base frame."""
    feet, roll, thigh, shank = _legs(joints)
    y, z = feet[:, 1] - HIPS[:, 1], feet[:, 2] - HIPS[:, 2]
    knee_x, knee_z = -SHANK * jnp.cos(shank), SHANK * jnp.sin(shank)
    hip_x, hip_z = knee_x - THIGH * jnp.cos(thigh), knee_z + THIGH * jnp.sin(thigh)
    columns = [jnp.stack([jnp.zeros_like(y), -SIDE * z, SIDE * y], axis=1)]
    for ahead, up in ((hip_x, hip_z), (knee_x, knee_z)):
        columns.append(jnp.stack([ahead, -jnp.sin(roll) * up, jnp.cos(roll) * up], axis=1))
    return jnp.stack(columns, axis=2)


def joint_angles(feet: Array) -> Array:
    """Joints [4, 3] (rad) that put the toes at `feet` [4, 3] (m, base frame), or as near as they reach."""
    x, y, z = (feet - HIPS).T
    down = jnp.sqrt(jnp.maximum(y * y + z * z - LATERAL**2, 1e-9))
    roll = jnp.arctan2(z, y) - jnp.arctan2(-down, LEG_PLANE)
    roll = (roll + np.pi) % (2 * np.pi) - np.pi
    cosine = (x * x + down * down - THIGH**2 - SHANK**2) / (2 * THIGH * SHANK)
    bend = -jnp.arccos(jnp.clip(cosine, -1.0, 1.0))
    thigh = jnp.arctan2(-x, down) - jnp.arctan2(SHANK * jnp.sin(bend), THIGH + SHANK * jnp.cos(bend))
    return jnp.stack([SIDE * roll, thigh - THIGH_ANGLE, bend + THIGH_ANGLE - SHANK_ANGLE], axis=1)


def desired_velocity(config: WalkerConfig, reading: Reading, ramp: Array) -> Array:
    """Commanded velocity of the base, [2] (m/s), yaw frame."""
    return jnp.stack([config.speed * ramp, -config.centring * reading.position[1]])


def ahead(config: WalkerConfig, reading: Reading, ramp: Array) -> Array:
    """Distance (m) ahead of its hip at which a foot that lifts off now lands without an offset."""
    trot, desired, capture = config.gait, config.speed * ramp, config.swing.capture
    return gait.raibert_offset.py_func(reading.velocity[0], desired, trot.swing, trot.stance, capture)


def sway(reading: Reading) -> Array:
    """As `Controller.sway`."""
    roll, rate = reading.attitude[0], reading.angular_velocity[0]
    return jnp.stack([reading.velocity[1], reading.position[1], roll, rate]) @ SWAY.astype(roll.dtype)


def hips_ahead(reading: Reading) -> Array:
    """Where the hips are along x, [4] (m, world)."""
    return reading.position[0] + (reading.hips @ reading.to_yaw)[:, 0]


def foot_velocities(reading: Reading, gradients: Array) -> Array:
    """Velocities of the toes [4, 3] (m/s, yaw frame); `gradients` [4, 3, 3] are the legs' Jacobians."""
    by_joints = jnp.einsum("laj,lj->la", gradients, reading.rates) @ reading.base_to_yaw.T
    return by_joints + reading.velocity + jnp.cross(reading.angular_velocity, reading.feet)


def commands(
    config: WalkerConfig,
    reading: Reading,
    now: Clock,
    desired: Array,
    forces: Array,
    lift_offs: Array,
    landings: Array,
    asides: Array,
    height: Array,
    push: Array,
) -> tuple[Drive, Array]:
    """The commands of a control period, and the landing points [4, 3] (m, world) of all legs after it.

    Standing legs push the ground with -`forces` [4, 3] (N, yaw frame), and brake a foot that slides. The
    others swing from `lift_offs` to `landings` [4, 3] at `height` (m), `asides` [4] (m) to the left of where
    they would. `now` is a row of the clock.
    """
    trot, swing = config.gait, config.swing
    gradients = jacobians(reading.joints)
    pushes = forces + config.stance.grip * foot_velocities(reading, gradients)
    torques = -jnp.einsum("laj,la->lj", gradients, pushes @ reading.base_to_yaw)
    left: Array = jnp.maximum(0.0, trot.swing - now.spent)
    aside = gait.raibert_offset.py_func(reading.velocity[1], desired[1], left, trot.stance, swing.capture)
    beside = reading.hips[:, 1] + LEG_PLANE + aside + asides
    across = reading.to_yaw[0, 1] * reading.hips[:, 0] + reading.to_yaw[1, 1] * beside
    goal = jnp.stack([landings[:, 0], reading.position[1] + across, jnp.zeros(4) + height], axis=1)
    swings = ~now.stands[:, None]
    landings = jnp.where(swings, goal, landings)
    progress = jnp.minimum(1.0, now.spent / trot.swing)
    travel = jnp.where(progress < 0.5, 1.6 * progress, 0.8 + 0.4 * (progress - 0.5))
    rise = 4 * swing.apex * progress * (1 - progress)
    way = landings - lift_offs
    path = lift_offs + jnp.stack([travel, travel, progress], axis=1) * way
    path = path + jnp.stack([jnp.zeros(4), jnp.zeros(4), rise], axis=1)
    # The targets of standing legs are not used: any point in reach.
    resting = reading.hips - jnp.array([0.0, 0.0, 0.3])
    points = jnp.where(swings, (path - reading.position) @ reading.to_yaw.T, resting)
    held = jnp.broadcast_to(swings, (4, 3))
    drive = Drive(joint_angles(points @ reading.base_to_yaw), jnp.where(held, 0.0, torques), held, push)
    return drive, landings
