"""The compiled arithmetic of a control period: gait events, joint commands, and the inputs of the MPC."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.gait import cycle, path, raibert_offset, standing
from robopolicy.control.kinematics import Legs, jacobians, joint_angles
from robopolicy.control.reading import Reading, turned
from robopolicy.control.stance import Plan
from robopolicy.control.state import Array


@numba.njit(cache=True)
def scheduled(
    time: float, period: float, swing: float, stood: NDArray[np.bool_], feet: Array
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_], bool, float]:
    """Which legs stand, touch down, lift off, [4] each; whether any changes; mean height of standing feet."""
    stands = standing(time, period, swing)
    height = 0.0
    for leg in range(4):
        if stands[leg]:
            height += feet[leg, 2]
    return stands, stands & ~stood, stood & ~stands, (stands != stood).any(), height / stands.sum()


@numba.njit(cache=True)
def foot_velocities(reading: Reading, gradients: Array) -> Array:
    """Velocities of the toes [4, 3] (m/s, yaw frame); `gradients` [4, 3, 3] are the legs' Jacobians."""
    spin, by_joints = reading.angular_velocity, np.zeros((4, 3))
    for leg in range(4):
        for axis in range(3):
            for joint in range(3):
                by_joints[leg, axis] += gradients[leg, axis, joint] * reading.rates[leg, joint]
    velocities = turned(reading.base_to_yaw, by_joints)
    for leg in range(4):
        x, y, z = reading.feet[leg]
        velocities[leg, 0] += reading.velocity[0] + spin[1] * z - spin[2] * y
        velocities[leg, 1] += reading.velocity[1] + spin[2] * x - spin[0] * z
        velocities[leg, 2] += reading.velocity[2] + spin[0] * y - spin[1] * x
    return velocities


@numba.njit(cache=True)
def commands(
    legs: Legs,
    reading: Reading,
    stands: NDArray[np.bool_],
    end: float,
    desired: Array,
    forces: Array,
    lift_offs: Array,
    landings: Array,
    asides: Array,
    timing: Array,
    landing_height: float,
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Joint targets (rad), torques (N m), and which joints follow their targets, [12] each.

    Standing legs push the ground with -`forces` [4, 3] (N, yaw frame), and brake a foot that slides. Swinging
    legs move to their position at time `end` (s). The function updates the `landings` [4, 3] (m, world) of
    swinging legs in place.

    asides: [4] (m), how far to the left of its nominal landing a foot lands.
    timing: period, swing, stance and capture (s), the apex (m), and the grip (N s/m).
    """
    position, to_yaw, base_to_yaw, hips = reading.position, reading.to_yaw, reading.base_to_yaw, reading.hips
    period, swing, stance, capture, apex, grip = timing
    gradients = jacobians(legs, reading.joints)
    pushes = turned(base_to_yaw.T, forces + grip * foot_velocities(reading, gradients))
    since_lift_off = cycle(end, period)
    torques, held = np.zeros(12), np.zeros(12, np.bool_)
    points = hips.copy()
    points[:, 2] -= 0.3  # any point in reach: the targets of standing legs are not used
    for leg in range(4):
        if stands[leg]:
            for joint in range(3):
                for axis in range(3):
                    torques[3 * leg + joint] -= gradients[leg, axis, joint] * pushes[leg, axis]
            continue
        held[3 * leg : 3 * leg + 3] = True
        spent = since_lift_off[leg]
        left = max(0.0, swing - spent)
        aside = raibert_offset(reading.velocity[1], desired[1], left, stance, capture)
        beside = hips[leg, 1] + legs.plane[leg] + aside + asides[leg]
        landings[leg, 1] = position[1] + to_yaw[0, 1] * hips[leg, 0] + to_yaw[1, 1] * beside
        landings[leg, 2] = landing_height
        point = path(lift_offs[leg], landings[leg], min(1.0, spent / swing), apex) - position
        for axis in range(3):
            points[leg, axis] = (to_yaw[axis] * point).sum()
    return joint_angles(legs, turned(base_to_yaw.T, points)).ravel(), torques, held


@numba.njit(cache=True)
def planned(
    reading: Reading,
    time: float,
    step: float,
    steps: int,
    period: float,
    swing: float,
    stands: NDArray[np.bool_],
    center: Array,
    landings: Array,
    desired: Array,
    yaw_gain: float,
    height: float,
) -> Plan:
    """The plan for a `height` (m) of the centre of mass, which is at `center` [3] (m) in the base frame.

    Feet are relative to the centre of mass, which moves with the desired velocity. A foot that is in the air
    now is planned at its landing point.
    """
    attitude, velocity, spin = reading.attitude, reading.velocity, reading.angular_velocity
    offset = turned(reading.base_to_yaw, center.reshape(1, 3))[0]
    pose = np.array([attitude[0], attitude[1], 0.0, 0.0, 0.0, reading.position[2] + offset[2]])
    rates = np.empty(6)
    rates[:3] = spin
    rates[3] = velocity[0] + spin[1] * offset[2] - spin[2] * offset[1]
    rates[4] = velocity[1] + spin[2] * offset[0] - spin[0] * offset[2]
    rates[5] = velocity[2] + spin[0] * offset[1] - spin[1] * offset[0]
    wanted = np.array([0.0, 0.0, -yaw_gain * attitude[2], desired[0], desired[1], 0.0])
    coming = turned(reading.to_yaw, landings - reading.position)
    schedule, places = np.empty((steps, 4), np.bool_), np.empty((steps, 4, 3))
    for k in range(steps):
        schedule[k] = stands if k == 0 else standing(time + k * step, period, swing)
        for leg in range(4):
            places[k, leg] = (reading.feet[leg] if stands[leg] else coming[leg]) - offset
            places[k, leg, 0] -= k * step * desired[0]
            places[k, leg, 1] -= k * step * desired[1]
    return Plan(pose, rates, wanted, height, places, schedule)
