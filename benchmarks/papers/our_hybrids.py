"""Angular hybrids of our own: on optimal positive features, and with simplex vectors.

    python benchmarks/papers/our_hybrids.py

d = 8 and d = 64, m = n = 8, vectors of one length (1 and 1.5), angles from 0 to pi; relative errors over 2000
draws. Bases: `positive_antithetic` (the paper's, 4m(n + 1) features), `positive` and `optimal_positive` (3m(n
+ 1)); vectors orthogonal, simplex or independent. The price of the map in FLOPs stands beside each.

No paper has these, so there is nothing to expect; the claims hold each to the paper's angular hybrid.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from hrf_fig2 import cost
from matplotlib.figure import Figure
from record import Result, run

from robopolicy.attention import feature_map, kernel_estimate

WIDTHS, RADII, DRAWS = (8, 64), (1.0, 1.5), 2000
THETA = np.linspace(0, np.pi, 17)
BASES = ("positive_antithetic", "positive", "optimal_positive")
COUPLINGS = ("orthogonal", "simplex", "iid")
PAPERS = "positive_antithetic, orthogonal"


def errors(base: str, coupling: str, dim: int, radius: float) -> list[float]:
    fm = feature_map(f"angular_hybrid(m=8, n=8, base={base}, coupling={coupling})")
    x, y = np.zeros((1, dim)), np.zeros((len(THETA), dim))
    x[0, 0] = radius
    y[:, 0], y[:, 1] = radius * np.cos(THETA), radius * np.sin(THETA)
    exact = np.exp(x @ y.T)[0]
    a, b = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
    draw = jax.jit(jax.vmap(lambda key: kernel_estimate(fm, fm.init(key, dim), a, b)[0]))
    found = np.asarray(draw(jax.random.split(jax.random.key(0), DRAWS)), np.float64)
    return (np.sqrt(np.mean((found - exact) ** 2, axis=0)) / exact).tolist()


def compute() -> Result:
    found: Result = {}
    claims = []
    for dim in WIDTHS:
        for radius in RADII:
            place = f"d = {dim}, length {radius}"
            rows = {f"{b}, {c}": errors(b, c, dim, radius) for b in BASES for c in COUPLINGS}
            found[place] = rows
            largest = {name: max(row) for name, row in rows.items()}
            for name in (
                "optimal_positive, orthogonal",
                "positive_antithetic, simplex",
                "optimal_positive, simplex",
            ):
                claims.append(
                    {
                        "claim": f"largest relative error at {place}: {name}",
                        "published": f"none; the paper's angular hybrid has {largest[PAPERS]:.3f}",
                        "measured": round(largest[name], 3),
                        "reached": largest[name] < largest[PAPERS],
                    }
                )
    prices = {base: cost(f"angular_hybrid(m=8, n=8, base={base})", 8) for base in BASES}
    return {
        "theta": THETA.tolist(),
        "relative_error": found,
        "map_flops_and_features_d8": prices,
        "claims": claims,
    }


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6))
    colours = dict(zip(BASES, ("#0072b2", "#56b4e9", "#009e73"), strict=True))
    styles = dict(zip(COUPLINGS, ("-", "--", ":"), strict=True))
    for panel, (place, rows) in zip(axes, result["relative_error"].items(), strict=True):
        for name, row in rows.items():
            base, coupling = name.split(", ")
            panel.plot(result["theta"], row, styles[coupling], color=colours[base], label=name)
        panel.set(title=place, xlabel="angle", xticks=[0, np.pi / 2, np.pi], ylim=(0, None))
        panel.set_xticklabels(["0", "π/2", "π"])
    axes[0].set_ylabel("relative error")
    figure.legend(*axes[0].get_legend_handles_labels(), fontsize=8, ncols=5, loc="outside lower center")
    return figure


if __name__ == "__main__":
    run("our_hybrids", compute, draw, __doc__)
