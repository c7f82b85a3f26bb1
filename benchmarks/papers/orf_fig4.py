"""ORF Fig. 4: errors of the Gaussian kernel on data, by number of vectors.

    python benchmarks/papers/orf_fig4.py

Data of scikit-learn in place of the paper's: wine (d = 13), breast_cancer (d = 30) and digits (d = 64),
standardised. sigma is the mean distance to the 50th nearest of up to 1000 points, as published. Trigonometric
features, m = D, D / d = 1 to 10, mean over all pairs of 150 points and 20 draws.

Expected: ORF and SORF below RFF on all data, and like one another. Halton sequences lie between in the paper
(its digital nets; these are scrambled Halton points).
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import COLOURS, Result, run
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from robopolicy.attention import feature_map, kernel_estimate

DATA = {"wine": load_wine, "breast_cancer": load_breast_cancer, "digits": load_digits}
MULTIPLES = (1, 2, 4, 7, 10)
NAMES = {"iid": "RFF", "orthogonal": "ORF", "hadamard": "SORF", "halton": "Halton"}
DRAWS, POINTS = 20, 150


def points(name: str) -> jax.Array:
    """Some of the data, over sigma."""
    rows = DATA[name]().data
    rows = (rows - rows.mean(0)) / np.maximum(rows.std(0), 1e-9)
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:1000]]
    distances = np.sqrt(np.maximum(np.sum((rows[:, None] - rows) ** 2, axis=-1), 0))
    sigma = np.sort(distances, axis=1)[:, 50].mean()
    return jnp.asarray(rows[:POINTS] / sigma, jnp.float32)


def error(x: jax.Array, coupling: str, m: int) -> float:
    fm = feature_map(f"trigonometric(m={m}, coupling={coupling})")
    halves = jnp.sum(x**2, axis=1) / 2
    gaussian = jnp.exp(-halves[:, None] - halves)
    exact = jnp.exp(x @ x.T) * gaussian

    @jax.jit
    def one(features: object) -> jax.Array:
        return jnp.mean((kernel_estimate(fm, features, x, x) * gaussian - exact) ** 2)

    keys = jax.random.split(jax.random.key(0), DRAWS)
    return float(np.mean([one(fm.init(key, x.shape[1])) for key in keys]))


def compute() -> Result:
    found: Result = {}
    for name in DATA:
        x = points(name)
        found[name] = {c: [error(x, c, k * x.shape[1]) for k in MULTIPLES] for c in NAMES}
    claims = []
    for name, rows in found.items():
        for coupling in ("orthogonal", "hadamard"):
            ratios = np.array(rows[coupling]) / rows["iid"]
            claims.append(
                {
                    "claim": f"{NAMES[coupling]} below RFF at every D / d, {name}",
                    "published": "yes",
                    "measured": ", ".join(f"{r:.2f}" for r in ratios),
                    "reached": bool(np.all(ratios < 1)),
                }
            )
    return {"multiples": list(MULTIPLES), "mse": found, "claims": claims}


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(1, len(DATA), figsize=(11, 3.4))
    for panel, (name, rows) in zip(axes, result["mse"].items(), strict=True):
        for coupling, errors in rows.items():
            panel.semilogy(
                result["multiples"],
                errors,
                "o-",
                markersize=3,
                color=COLOURS[coupling],
                label=NAMES[coupling],
            )
        panel.set(title=name, xlabel="D / d")
    axes[0].set_ylabel("mean squared error")
    axes[0].legend()
    return figure


if __name__ == "__main__":
    run("orf_fig4", compute, draw, __doc__)
