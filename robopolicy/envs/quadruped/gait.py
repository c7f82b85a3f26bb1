"""A trot: diagonal pairs of legs swing in turn."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array

# FR and RL lift off first, FL and RR half a period later.
OFFSETS = np.array([0.0, 0.5, 0.5, 0.0])


@dataclass(frozen=True)
class TrotConfig:
    """`period` of the gait (s), and `duty`, the share of it in which a foot is on the ground."""

    period: float = 0.5
    duty: float = 0.6


class Trot:
    """The schedule: legs swing in the first `1 - duty` of their cycle. Before time 0 all legs stand."""

    def __init__(self, config: TrotConfig) -> None:
        self.period = config.period
        self.swing = (1.0 - config.duty) * config.period  # s
        self.stance = config.duty * config.period  # s

    def standing(self, time: float) -> NDArray[np.bool_]:
        """Whether each leg is scheduled to stand, [4]."""
        return np.asarray(standing(time, self.period, self.swing))


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
