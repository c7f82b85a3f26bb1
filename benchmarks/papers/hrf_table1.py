"""HRF Table 1: kernel errors on the wine data against orthogonal, structured and quasi-Monte-Carlo features.

    python benchmarks/papers/hrf_table1.py

100 random pairs of data points, averaged over draws; baselines are trigonometric with m = 512; 30
repetitions, the standard deviation over them. (The paper's second set, Boston, is not distributed any more.)
Not published, and fixed beforehand, every reading reported: standardised data scaled to a mean squared length
of 1, or each point to length 1; hybrids with n = 8 and the m that matches the baseline by m * n, by counted
FLOPs of the map, or by number of features.

Published, in units of 1e-3: HRF-ort .70, HRF-iid .85, ORF 1.00, ORF with Hadamard matrices 1.10, Halton 4.02;
that is HRF-ort < HRF-iid < ORF < ORF-Hadamard < Halton. The absolute figures depend on the unknown scaling.

Found: hybrids beat orthogonal, Hadamard and Halton vectors in no reading. The closest one has points of
length 1 and equal FLOPs, where their m is above 300. Points of other lengths are outside what the angular
hybrid is made for: a few long pairs, at which its positive part has huge errors, decide the mean. Orthogonal
and Hadamard vectors show no difference.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from hrf_fig2 import N, matched
from matplotlib.figure import Figure
from record import Result, run
from sklearn.datasets import load_wine

from robopolicy.attention import feature_map, kernel_estimate

M, DIM, PAIRS, REPETITIONS = 512, 13, 100, 30
PUBLISHED = {"HRF-ort": 0.70, "HRF-iid": 0.85, "ORF": 1.00, "ORF-Hadamard": 1.10, "Halton": 4.02}


SCALINGS = ("mean length", "unit length")


def data(scaling: str) -> tuple[jax.Array, jax.Array]:
    points = load_wine().data
    points = (points - points.mean(0)) / points.std(0)
    squares = np.sum(points**2, axis=1, keepdims=True)
    points = points / np.sqrt(squares if scaling == "unit length" else squares.mean())
    first, second = np.random.default_rng(0).integers(len(points), size=(2, PAIRS))
    return jnp.asarray(points[first], jnp.float32), jnp.asarray(points[second], jnp.float32)


def errors(spec: str, scaling: str) -> np.ndarray:
    """Mean squared error over the pairs, times 1e3, for each repetition."""
    x, y = data(scaling)
    fm = feature_map(spec)
    exact = jnp.exp(jnp.sum(x * y, axis=1))

    @jax.jit
    def one(features: object) -> jax.Array:
        return jnp.mean((jnp.diagonal(kernel_estimate(fm, features, x, y)) - exact) ** 2)

    keys = jax.random.split(jax.random.key(1), REPETITIONS)
    return 1e3 * np.array([one(fm.init(key, x.shape[1])) for key in keys])


def compute() -> Result:
    readings = matched("angular_hybrid", f"trigonometric(m={M})", M, DIM)
    specs = {
        "ORF": f"trigonometric(m={M})",
        "ORF-Hadamard": f"trigonometric(m={M}, coupling=hadamard)",
        "Halton": f"trigonometric(m={M}, coupling=halton)",
        "iid": f"trigonometric(m={M}, coupling=iid)",
        "FAVOR+": f"positive_antithetic(m={M})",
    }
    for how, m in readings.items():
        specs[f"HRF-ort, {how}"] = f"angular_hybrid(m={m}, n={N})"
        specs[f"HRF-iid, {how}"] = f"angular_hybrid(m={m}, n={N}, coupling=iid)"
    tables: Result = {}
    claims: dict[str, Result] = {}
    for scaling in SCALINGS:
        rows = {name: errors(spec, scaling) for name, spec in specs.items()}
        tables[scaling] = {
            name: {
                "spec": specs[name],
                "mean": round(float(e.mean()), 4),
                "sd": round(float(e.std(ddof=1)), 4),
            }
            for name, e in rows.items()
        }
        means = {name: row["mean"] for name, row in tables[scaling].items()}
        for how in readings:
            order = [f"HRF-ort, {how}", f"HRF-iid, {how}", "ORF", "ORF-Hadamard", "Halton"]
            for better, worse in pairwise(order):
                claim = f"{scaling}: {better} below {worse}"
                claims[claim] = {
                    "claim": claim,
                    "published": f"{PUBLISHED[better.split(',')[0]]} < {PUBLISHED[worse.split(',')[0]]}",
                    "measured": f"{means[better]:.3f}, {means[worse]:.3f}",
                    "reached": means[better] < means[worse],
                }
    return {
        "unit": 1e-3,
        "readings": readings,
        "tables": tables,
        "published": PUBLISHED,
        "claims": list(claims.values()),
    }


def draw(result: Result) -> Figure:
    figure, panels = plt.subplots(1, len(SCALINGS), figsize=(11, 3.6))
    for scaling, axes in zip(SCALINGS, panels, strict=True):
        table = result["tables"][scaling]
        names = sorted(table, key=lambda name: table[name]["mean"])
        means, spreads = ([table[n][key] for n in names] for key in ("mean", "sd"))
        axes.barh(names, means, xerr=spreads, color=["#000000" if "HRF" in n else "#0072b2" for n in names])
        for name, value in result["published"].items():
            for row in [n for n in names if n.split(",")[0] == name]:
                axes.plot(value, row, "o", color="#d55e00", markersize=5)
        axes.set(
            xscale="log", xlabel="mean squared error, 1e-3 (dots: published)", title=f"data of {scaling}"
        )
        axes.invert_yaxis()
    return figure


if __name__ == "__main__":
    run("hrf_table1", compute, draw, __doc__)
