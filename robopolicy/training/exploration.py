"""How far a search looks around, and how steep it finds the returns there, whatever its strategy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robopolicy.training.metrics import Record


def exploration(population: ArrayLike, centre: ArrayLike, returns: NDArray[np.floating]) -> Record:
    """How widely a generation's candidates were spread, and how steep their returns are.

    Args:
      population: candidates [N, P].
      centre: the search's mean [P] when it drew them.
      returns: of each candidate, [N].

    Returns `sigma`, the candidates' distance from the mean as a standard deviation of each parameter, and
    `gradient_norm`, that of mean((return - mean return) (candidate - centre)) / sigma^2, an estimate of the
    return's gradient (Salimans et al., 2017, Section 2). Both are zero where all candidates are the same.
    """
    away = np.asarray(population, np.float64) - np.asarray(centre, np.float64)
    variance = float(np.mean(np.square(away)))
    if variance == 0.0:
        return {"sigma": 0.0, "gradient_norm": 0.0}
    earned = np.asarray(returns, np.float64)
    slope = (earned - earned.mean()) @ away / (len(away) * variance)
    return {"sigma": float(np.sqrt(variance)), "gradient_norm": float(np.linalg.norm(slope))}
