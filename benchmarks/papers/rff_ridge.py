"""Kernel ridge regression with random Fourier features (Rahimi & Recht 2007, section 5) against the exact
kernel.

    python benchmarks/papers/rff_ridge.py

load_diabetes of scikit-learn (standardised, half for training) and a smooth function of five variables, 1000
noisy points. The exact model is scikit-learn's KernelRidge; bandwidth and penalty are chosen for it, on a
quarter of the training data, and used for all. Ridge regression on features, averaged over 10 draws.

Expected: the test error goes to the exact one as features are added; within 5 % of it at m = 1024.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import Result, run
from sklearn.datasets import load_diabetes
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge

from robopolicy.attention import feature_map

COUNTS = (16, 64, 256, 1024)
MAPS = ("trigonometric, iid", "trigonometric", "trigonometric_phase, iid")
DRAWS = 10
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def data() -> dict[str, Split]:
    points, target = load_diabetes(return_X_y=True)
    points = (points - points.mean(0)) / points.std(0)
    rng = np.random.default_rng(0)
    smooth = rng.uniform(-2, 2, size=(1000, 5))
    wave = np.sin(smooth[:, 0] * smooth[:, 1]) + np.cos(smooth[:, 2]) + 0.3 * smooth[:, 3]
    sets = {"diabetes": (points, target), "smooth": (smooth, wave + 0.1 * rng.normal(size=1000))}
    found = {}
    for name, (x, y) in sets.items():
        order = np.random.default_rng(1).permutation(len(x))
        train, test = order[: len(x) // 2], order[len(x) // 2 :]
        y = (y - y[train].mean()) / y[train].std()
        found[name] = (x[train], y[train], x[test], y[test])
    return found


def chosen(split: Split) -> tuple[float, float]:
    """Bandwidth and penalty of the exact model."""
    x, y, _, _ = split
    part = 3 * len(x) // 4
    options = [(s, a) for s in (1.0, 2.0, 3.0, 5.0, 8.0) for a in (0.01, 0.1, 1.0)]

    def held_out(option: tuple[float, float]) -> float:
        return exact_error((x[:part], y[:part], x[part:], y[part:]), *option)

    return min(options, key=held_out)


def exact_error(split: Split, sigma: float, alpha: float) -> float:
    x, y, x_test, y_test = split
    model = KernelRidge(kernel="rbf", gamma=1 / (2 * sigma**2), alpha=alpha).fit(x, y)
    return float(np.mean((model.predict(x_test) - y_test) ** 2))


def errors(split: Split, name: str, m: int, sigma: float, alpha: float) -> list[float]:
    x, y, x_test, y_test = split
    spec, _, coupling = name.partition(", ")
    fm = feature_map(f"{spec}(m={m}{f', coupling={coupling}' if coupling else ''})")
    found = []
    for key in jax.random.split(jax.random.key(0), DRAWS):
        drawn = fm.init(key, x.shape[1])
        # The Gaussian kernel's features: those of the softmax kernel without the length of the point.
        sides = []
        for points in (x, x_test):
            scaled = jnp.asarray(points / sigma, jnp.float32)
            mapped = fm.apply_q(drawn, scaled)
            scale = jnp.exp(mapped.log_scale - jnp.sum(scaled**2, axis=1) / 2)
            sides.append(np.asarray(mapped.values * scale[:, None], np.float64))
        model = Ridge(alpha=alpha, fit_intercept=False).fit(sides[0], y)
        found.append(float(np.mean((model.predict(sides[1]) - y_test) ** 2)))
    return found


def compute() -> Result:
    curves: Result = {}
    claims = []
    for name, split in data().items():
        sigma, alpha = chosen(split)
        exact = exact_error(split, sigma, alpha)
        found = {map_: [errors(split, map_, m, sigma, alpha) for m in COUNTS] for map_ in MAPS}
        curves[name] = {
            "sigma": sigma,
            "alpha": alpha,
            "exact": exact,
            "mean": {k: [float(np.mean(e)) for e in rows] for k, rows in found.items()},
            "sd": {k: [float(np.std(e, ddof=1)) for e in rows] for k, rows in found.items()},
        }
        for map_, means in curves[name]["mean"].items():
            gap = means[-1] / exact - 1
            claims.append(
                {
                    "claim": f"test error of {map_} at m = 1024 above the exact kernel's, {name}",
                    "published": "approaches it: below 5 %",
                    "measured": f"{gap:.1%}",
                    "reached": bool(gap < 0.05),
                }
            )
    return {"m": list(COUNTS), "data": curves, "claims": claims}


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(1, len(result["data"]), figsize=(9, 3.4))
    colours = {
        "trigonometric, iid": "#d55e00",
        "trigonometric": "#0072b2",
        "trigonometric_phase, iid": "#cc79a7",
    }
    labels = {"trigonometric": "trigonometric, orthogonal"}
    for panel, (name, row) in zip(axes, result["data"].items(), strict=True):
        panel.axhline(row["exact"], color="0.5", linestyle=":", label="exact kernel")
        for map_, means in row["mean"].items():
            panel.errorbar(
                result["m"], means, row["sd"][map_], color=colours[map_], label=labels.get(map_, map_)
            )
        panel.set(title=name, xlabel="m", xscale="log", ylabel="test error (variance 1)")
    axes[0].legend(fontsize=7)
    return figure


if __name__ == "__main__":
    run("rff_ridge", compute, draw, __doc__)
