"""A trot: diagonal pairs of legs swing in turn, each foot along a path to its landing point."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.control.state import Array
from robopolicy.settings import check_number

# FR and RL lift off first, FL and RR half a period later.
OFFSETS = np.array([0.0, 0.5, 0.5, 0.0])


@dataclass(frozen=True)
class TrotConfig:
    """`period` of the gait (s), and `duty`, the share of it in which a foot is on the ground.

    Legs swing in the first `1 - duty` of their cycle. Before time 0 all legs stand.
    """

    period: float = 0.5
    duty: float = 0.6

    def __post_init__(self) -> None:
        check_number("period", self.period, 0.05, 5.0)
        check_number("duty", self.duty, 0.5, 0.95)  # with less, no leg stands at times

    @property
    def swing(self) -> float:
        """Seconds of a cycle in the air."""
        return (1.0 - self.duty) * self.period

    @property
    def stance(self) -> float:
        """Seconds of a cycle on the ground."""
        return self.duty * self.period


@dataclass(frozen=True)
class SwingConfig:
    """Heights in metres. `capture` (s) times the error of the speed shifts a foothold (Raibert 1986)."""

    apex: float = 0.10
    capture: float = 0.03
    touchdown_press: float = 0.005  # depth of the landing point below the ground, for a firm contact

    def __post_init__(self) -> None:
        check_number("apex", self.apex, 0.0, 0.5)
        check_number("capture", self.capture, 0.0, 1.0)
        check_number("touchdown_press", self.touchdown_press, 0.0, 0.1)


@numba.njit(cache=True)
def cycle(time: float, period: float) -> Array:
    """Seconds since each leg's last scheduled lift-off, [4], in [0, period)."""
    # Without rounding, a lift-off on a control tick may move to the next tick.
    return np.round((time - OFFSETS * period) % period, 9) % period


@numba.njit(cache=True)
def standing(time: float, period: float, swing: float) -> NDArray[np.bool_]:
    """Whether each leg of a trot with `swing` seconds in the air is scheduled to stand, [4]."""
    # A leg stands until its own first cycle begins.
    return (cycle(time, period) >= swing - 1e-9) | (time < OFFSETS * period - 1e-9)


@numba.njit(cache=True)
def raibert_offset(
    velocity: float, desired: float, swing_left: float, stance: float, capture: float
) -> float:
    """Landing point relative to the present hip along one axis (m).

    It is the sum of the hip's travel until touchdown, half of its travel in a stance, and a correction of the
    speed (Raibert 1986, "Legged Robots That Balance"). Velocities in m/s, yaw frame; time until touchdown and
    duration of a stance in seconds.
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
