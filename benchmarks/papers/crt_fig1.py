"""CRT Fig. 1 (right): how much less optimal positive features vary than positive ones.

    python benchmarks/papers/crt_fig1.py

Closed forms alone (CRT Theorem 3.2). Expected: at d = 64 and |x + y|^2 = 100, over e^60 times less variance.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import Result, run

from robopolicy.attention.theory import optimal_positive_mse, positive_mse

WIDTHS = (1, 4, 16, 64, 256)
SQUARES = np.linspace(1, 100, 100)


def log_ratio(square: float, dim: int) -> float:
    """log(variance of optimal positive / variance of positive) at |x + y|^2 = square; all else cancels."""
    x = np.zeros(dim)
    x[0] = np.sqrt(square)
    y = np.zeros(dim)
    return float(np.log(optimal_positive_mse(x, y, 1)) - np.log(positive_mse(x, y, 1)))


def compute() -> Result:
    curves = {str(dim): [log_ratio(s, dim) for s in SQUARES] for dim in WIDTHS}
    measured = curves["64"][-1]
    claim = {
        "claim": "log variance ratio at d = 64, |x + y|^2 = 100",
        "published": "below -60",
        "measured": round(measured, 2),
        "reached": measured < -60,
    }
    return {"square": SQUARES.tolist(), "log_ratio": curves, "claims": [claim]}


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(figsize=(6, 4))
    for dim, shade in zip(WIDTHS, np.linspace(0.75, 0, len(WIDTHS)), strict=True):
        axes.plot(result["square"], result["log_ratio"][str(dim)], color=str(shade), label=f"d = {dim}")
    axes.axhline(-60, color="0.6", linestyle=":")
    axes.set(xlabel="$|x + y|^2$", ylabel="log of the variance ratio", title="optimal positive over positive")
    axes.legend()
    return figure


if __name__ == "__main__":
    run("crt_fig1", compute, draw, __doc__)
