"""Swing legs: where a foot lands, and the path that it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numba

from robopolicy.envs.physics.base import Array


@dataclass(frozen=True)
class SwingConfig:
    """Heights in metres. `capture` (s): how far a foothold moves for each m/s of speed error (Raibert)."""

    apex: float = 0.10
    capture: float = 0.03
    touchdown_press: float = 0.005  # m below the ground that a swing aims, so that contact is firm


@numba.njit(cache=True)
def raibert_offset(
    velocity: float, desired: float, swing_left: float, stance: float, capture: float
) -> float:
    """Landing point relative to the present hip along one axis (m).

    It is the hip's travel until touchdown, half a stance of travel, and a correction of the speed.
    velocity, desired: m/s, yaw frame; swing_left: seconds until touchdown; stance: seconds of stance.
    """
    return velocity * (swing_left + stance / 2) - capture * (desired - velocity)


@numba.njit(cache=True)
def path(lift_off: Array, landing: Array, progress: float, apex: float) -> Array:
    """Point [3] of a swing from `lift_off` [3] to `landing` [3] at `progress` in [0, 1].

    Four fifths of the way are covered in the first half, which leaves the foot above its landing point
    early; the height is a parabola of `apex` metres over the line between the two ends.
    """
    travel = 1.6 * progress if progress < 0.5 else 0.8 + 0.4 * (progress - 0.5)
    point = lift_off + travel * (landing - lift_off)
    point[2] = lift_off[2] + progress * (landing[2] - lift_off[2]) + 4 * apex * progress * (1 - progress)
    return point
