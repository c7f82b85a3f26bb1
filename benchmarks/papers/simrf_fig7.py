"""SimRF Fig. 7: Frobenius error of the Gram matrix of a Gaussian kernel, positive features.

    python benchmarks/papers/simrf_fig7.py

64 points of N(0, 0.1^2) in 64 dimensions; 64 to 1024 features; 100 draws a point (the paper's number is not
given). Error as published: Frobenius norm over d^2.

Expected: simplex < orthogonal < independent at every number of features.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import COLOURS, Result, run

from robopolicy.attention import feature_map, kernel_estimate

DIM, POINTS, SIGMA, DRAWS = 64, 64, 0.1, 100
BLOCKS = (1, 2, 4, 8, 16)
COUPLINGS = ("iid", "orthogonal", "simplex", "simplex_plus", "fast_simplex")


def errors(coupling: str, blocks: int) -> np.ndarray:
    x = SIGMA * jax.random.normal(jax.random.key(0), (POINTS, DIM))
    halves = jnp.sum(x**2, axis=1) / 2
    gaussian = jnp.exp(-halves[:, None] - halves)
    exact = jnp.exp(x @ x.T) * gaussian
    fm = feature_map(f"positive(m={blocks * DIM}, coupling={coupling})")

    @jax.jit
    def one(key: jax.Array) -> jax.Array:
        estimate = kernel_estimate(fm, fm.init(key, DIM), x, x) * gaussian
        return jnp.linalg.norm(estimate - exact) / DIM**2

    return np.array([one(key) for key in jax.random.split(jax.random.key(1), DRAWS)])


def compute() -> Result:
    found = {c: [errors(c, blocks) for blocks in BLOCKS] for c in COUPLINGS}
    means = {c: [float(e.mean()) for e in each] for c, each in found.items()}
    spreads = {c: [float(e.std(ddof=1) / np.sqrt(DRAWS)) for e in each] for c, each in found.items()}
    claims = [
        {
            "claim": f"{better} below {worse} at every number of features",
            "published": "yes",
            "measured": ", ".join(f"{a / b:.2f}" for a, b in zip(means[better], means[worse], strict=True)),
            "reached": all(a < b for a, b in zip(means[better], means[worse], strict=True)),
        }
        for better, worse in (("simplex", "orthogonal"), ("orthogonal", "iid"))
    ]
    return {"blocks": list(BLOCKS), "error": means, "standard_error": spreads, "claims": claims}


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(figsize=(6, 4))
    styles = {"fast_simplex": ("--", "simplex")}
    for coupling, means in result["error"].items():
        style, colour = styles.get(coupling, ("-", coupling))
        spread = result["standard_error"][coupling]
        axes.errorbar(result["blocks"], means, spread, linestyle=style, color=COLOURS[colour], label=coupling)
    axes.set(xscale="log", yscale="log", xlabel="features / d", ylabel="Frobenius error / d²")
    axes.set_xticks(result["blocks"], [str(b) for b in result["blocks"]])
    axes.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    run("simrf_fig7", compute, draw, __doc__)
