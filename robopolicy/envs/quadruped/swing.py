"""Swing legs: the landing point of a foot, and its path."""

from __future__ import annotations

from dataclasses import dataclass

import numba

from robopolicy.envs.physics.base import Array


@dataclass(frozen=True)
class SwingConfig:
    """Heights in metres. `capture` (s) shifts a foothold by the speed error times itself (Raibert)."""

    apex: float = 0.10
    capture: float = 0.03
    touchdown_press: float = 0.005  # depth of the landing point below the ground, for a firm contact


@numba.njit(cache=True)
def raibert_offset(
    velocity: float, desired: float, swing_left: float, stance: float, capture: float
) -> float:
    """Landing point relative to the present hip along one axis (m).

    It is the sum of the hip's travel until touchdown, half of its travel in a stance, and a correction of the
    speed. velocity, desired: m/s, yaw frame; swing_left: time until touchdown (s); stance: duration of a
    stance (s).
    """
    return velocity * (swing_left + stance / 2) - capture * (desired - velocity)


@numba.njit(cache=True)
def path(lift_off: Array, landing: Array, progress: float, apex: float) -> Array:
    """Point [3] of a swing from `lift_off` [3] to `landing` [3] at `progress` in [0, 1].

    The foot covers four fifths of the way in the first half, so that it is above its landing point early. The
    height is a parabola of `apex` metres over the line between both ends.
    """
    travel = 1.6 * progress if progress < 0.5 else 0.8 + 0.4 * (progress - 0.5)
    point = lift_off + travel * (landing - lift_off)
    point[2] = lift_off[2] + progress * (landing[2] - lift_off[2]) + 4 * apex * progress * (1 - progress)
    return point
