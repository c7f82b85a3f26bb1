"""HRF Fig. 1: mean squared errors of three estimators by angle and length.

    python benchmarks/papers/hrf_fig1.py

Closed forms (HRF Lemma 2.2 and Theorem D.1) with m = 10, n = 1 as in the caption, for vectors of one length.
Expected: the error of the angular hybrid alone vanishes at both angle 0 and angle pi.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import COLOURS, Result, run

from robopolicy.attention.theory import angular_hybrid_mse, positive_antithetic_mse, trigonometric_mse

M, N = 10, 1
RADII = (0.5, 1.0, 1.5, 2.0)
# Beside the ends, where an error that vanishes is still above rounding.
THETA = np.linspace(1e-4, np.pi - 1e-4, 181)
ESTIMATORS = {
    "trigonometric": lambda x, y: trigonometric_mse(x, y, M),
    "positive_antithetic": lambda x, y: positive_antithetic_mse(x, y, M),
    "angular_hybrid": lambda x, y: angular_hybrid_mse(x, y, M, N),
}


def compute() -> Result:
    curves: Result = {}
    for radius in RADII:
        x = np.tile([radius, 0.0], (len(THETA), 1))
        y = radius * np.stack([np.cos(THETA), np.sin(THETA)], axis=1)
        curves[str(radius)] = {name: mse(x, y).tolist() for name, mse in ESTIMATORS.items()}
    claims = []
    for name, both in (("trigonometric", False), ("positive_antithetic", False), ("angular_hybrid", True)):
        ends = [
            [curve[name][0] / max(curve[name]), curve[name][-1] / max(curve[name])]
            for curve in curves.values()
        ]
        vanishes = [bool(max(end) < 1e-3) for end in zip(*ends, strict=True)]
        claims.append(
            {
                "claim": f"error of {name} vanishes at angle 0, at pi",
                "published": "both" if both else "one of them",
                "measured": " and ".join("yes" if v else "no" for v in vanishes),
                "reached": all(vanishes) == both and any(vanishes),
            }
        )
    return {"m": M, "n": N, "theta": THETA.tolist(), "mse": curves, "claims": claims}


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(1, len(RADII), figsize=(12, 3), sharex=True)
    for radius, panel in zip(RADII, axes, strict=True):
        for name, curve in result["mse"][str(radius)].items():
            panel.semilogy(result["theta"], curve, color=COLOURS[name], label=name)
        panel.set(title=f"length {radius}", xlabel="angle", xticks=[0, np.pi / 2, np.pi])
        panel.set_xticklabels(["0", "π/2", "π"])
        top = max(max(curve) for curve in result["mse"][str(radius)].values())
        panel.set_ylim(1e-6 * top, 2 * top)
    axes[0].set_ylabel("mean squared error")
    axes[0].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    run("hrf_fig1", compute, draw, __doc__)
