"""Baselines that ignore the observation. numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Act = Callable[[Mapping[str, NDArray[np.float32]]], NDArray[np.float32]]


def blind(action_size: int) -> Act:
    """Always the middle of the action space, zeros [A]."""
    return lambda observation: np.zeros(action_size, np.float32)


def random(action_size: int, seed: int) -> Act:
    """Actions [A] uniform in [-1, 1], the same sequence for the same seed."""
    rng = np.random.default_rng(seed)
    return lambda observation: rng.uniform(-1.0, 1.0, action_size).astype(np.float32)
