"""HRF Table 3 and Fig. 6: the hybrid for clustered data against FAVOR+ and trigonometric features.

    python benchmarks/papers/hrf_table3.py

Two clusters of 1000 queries and two of 1000 keys, d = 50, queries scaled to length 0.1 and keys to length 1,
sigma 1 and sqrt(10), 20 draws; a point is the mean squared error of one draw over pairs of points. Expected:
the clustered hybrid with real diagonal A has the least error everywhere, about 2 to 10 times below
trigonometric features and 5 to 20 times below FAVOR+.

Not published, and fixed beforehand:
- Entries of the two vectors that all means are turned from are N(0, a^2). The list of s decides a: the
  smallest whole number at which the list can be reached, for s depends on how far from the origin the
  clusters lie.
- Signs of the entries of means start with every s equal to 0, and are flipped one at a time, in random order,
  where that brings s of the four pairs nearer to the published list. s is the least value of l(A) at the
  centres of the normalised points, 4 sum |r_k s_k| over entries of one sign.
- Vectors are independent (coupling iid). FAVOR+ is given one-sided (`positive`), as the paper's FAVOR+, and
  two-sided (`positive_antithetic`), which is the paper's hyperbolic one.
- Means are found by k-means on the normalised points.
- Errors are averaged over 1000 x 500 pairs, every second query and fourth key, to save time; k-means sees all
  points.

Found: baselines come within a factor of 2.3 of the published ones. The hybrid with real A is below all of
them nearly everywhere, its mean error by a factor of 1.5 to 2.7 below that of trigonometric features and 4.5
to 8.4 below one-sided FAVOR+; near the published figures at sigma sqrt(10), twice them at sigma 1. Where a
centre has an entry near zero the best A of Eq. 88 is huge or tiny there, which multiplies the spread of the
points: the library keeps entries within a factor of 2 of what the lengths of the two centres ask for, which
the JSON compares with other factors (`m_times_error_by_bounds`, closed form). What the paper did about such
entries, and how its entries were drawn, is not known. With complex A, which make twice as many features, the
error is 2 to 6 times less again.
"""

from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from record import COLOURS, Result, run
from scipy.stats import ortho_group

from robopolicy.attention import feature_map, fit, kernel_estimate
from robopolicy.attention.clustered import CLIP

DIM, POINTS, REPETITIONS = 50, 1000, 20
COUNTS = (20, 50, 80, 100, 120, 150, 200)
LISTS = {
    "s1, sigma 1": (1.0, (0.08, 0.05, 0.04, 0.03)),
    "s2, sigma 1": (1.0, (0.11, 0.09, 0.08, 0.07)),
    "s3, sigma sqrt(10)": (np.sqrt(10), (0.05, 0.03, 0.03, 0.02)),
    "s4, sigma sqrt(10)": (np.sqrt(10), (0.07, 0.06, 0.05, 0.04)),
}
CLUSTERS = "query_clusters=2, key_clusters=2, coupling=iid"
SPECS = {
    "clustered_hybrid": f"clustered_hybrid(m={{}}, matrices=real, {CLUSTERS})",
    "positive": "positive(m={}, coupling=iid)",
    "positive_antithetic": "positive_antithetic(m={}, coupling=iid)",
    "trigonometric": "trigonometric(m={}, coupling=iid)",
    "complex matrices": f"clustered_hybrid(m={{}}, matrices=complex, {CLUSTERS})",
}
ENDS = (COUNTS[0], COUNTS[-1])
# Smallest and largest error in units of 1e-4, for each count of COUNTS, from HRF Table 3.
PUBLISHED = {
    "s1, sigma 1": {
        "clustered_hybrid": [(16, 183), (11, 81), (5, 52), (6, 36), (4, 25), (3, 20), (2, 10)],
        "positive": [(71, 1455), (26, 2541), (32, 282), (22, 528), (28, 534), (14, 582), (13, 205)],
        "trigonometric": [(39, 808), (31, 510), (10, 281), (13, 170), (12, 135), (7, 134), (4, 87)],
    },
    "s2, sigma 1": {
        "clustered_hybrid": [(32, 265), (12, 79), (7, 59), (7, 40), (5, 25), (4, 24), (3, 18)],
        "positive": [(95, 2071), (36, 2123), (37, 570), (16, 280), (13, 262), (10, 407), (18, 236)],
        "trigonometric": [(36, 989), (19, 565), (8, 208), (10, 164), (7, 246), (4, 190), (4, 134)],
    },
    "s3, sigma sqrt(10)": {
        "clustered_hybrid": [(83, 300), (46, 183), (29, 105), (24, 56), (20, 46), (15, 41), (11, 31)],
        "positive": [(362, 1218), (125, 1262), (108, 281), (77, 421), (77, 402), (49, 395), (37, 150)],
        "trigonometric": [(174, 490), (81, 249), (44, 143), (41, 95), (34, 77), (25, 73), (18, 50)],
    },
    "s4, sigma sqrt(10)": {
        "clustered_hybrid": [(97, 294), (49, 172), (31, 113), (28, 61), (22, 45), (16, 44), (12, 31)],
        "positive": [(332, 1553), (176, 1345), (113, 415), (80, 292), (65, 185), (45, 235), (46, 166)],
        "trigonometric": [(179, 485), (58, 260), (38, 110), (31, 100), (28, 128), (21, 94), (15, 67)],
    },
}


def losses(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Least l(A) over real diagonal A for all pairs of centres, [4]."""
    products = queries[:, None] * keys[None]
    return 4 * np.sum(np.maximum(products, 0), axis=-1).ravel()


def means(
    rng: np.random.Generator, scale: float, sigma: float, wanted: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Means of two clusters of queries and two of keys, with signs that bring s near to `wanted`."""
    turned = []
    for sign in (1, -1):
        start = scale * rng.standard_normal(DIM)
        turned.append(sign * np.abs(ortho_group.rvs(DIM, size=2, random_state=rng) @ start))
    both = np.stack(turned)
    # Where the centre of a cluster lies when its points are scaled to length one.
    shrink = 1 / np.sqrt(np.sum(both[0, 0] ** 2) + DIM * sigma**2)
    shrink *= 1 / np.sqrt(np.sum(both[1, 0] ** 2) + DIM * sigma**2)

    def distance(signed: np.ndarray) -> float:
        return float(np.sum((0.1 * shrink * losses(*signed) - wanted) ** 2))

    least, order = distance(both), np.arange(both.size)
    for _ in range(10):
        for entry in rng.permutation(order):
            both.flat[entry] *= -1
            now = distance(both)
            least, keep = (now, 1) if now < least else (least, -1)
            both.flat[entry] *= keep
    return both[0], both[1]


def sample(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Queries and keys [2 * POINTS, DIM], and the whole number that scaled their means."""
    sigma, wanted = LISTS[name]
    for scale in range(1, 20):
        rng = np.random.default_rng(seed)
        centres = means(rng, scale, sigma, np.array(wanted))
        sides = [
            np.repeat(c, POINTS, axis=0) + sigma * rng.standard_normal((2 * POINTS, DIM)) for c in centres
        ]
        x, y = (
            length * s / np.linalg.norm(s, axis=1, keepdims=True)
            for s, length in zip(sides, (0.1, 1.0), strict=True)
        )
        if np.max(np.abs(reached(x, y) - wanted)) < 0.005:
            return x, y, scale
    raise ValueError(f"no scale of means reaches {wanted}")


def reached(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """s at the centres of the clusters that points were drawn for."""
    return losses(*(side.reshape(2, POINTS, DIM).mean(1) for side in (x, y)))


def bounds(queries: np.ndarray, keys: np.ndarray) -> dict[str, float]:
    """m times the expected error of the hybrid, with entries of A kept within different factors of the usual.

    Closed form of the variance of real complex-exponential estimators, on every tenth point.
    """
    factors = {"none": np.inf, "4": 4.0, "library": CLIP, "1.5": 1.5}
    found = dict.fromkeys(factors, 0.0)
    x, y = queries.reshape(2, POINTS, DIM), keys.reshape(2, POINTS, DIM)
    for u in x:
        for w in y:
            r, s = u.mean(0), w.mean(0)
            best, ratio = np.sqrt(np.abs(s / r)), np.sqrt(np.linalg.norm(s) / np.linalg.norm(r))
            for name, factor in factors.items():
                diagonal = np.clip(best, ratio / factor, ratio * factor)
                z = (u[::10] * diagonal)[:, None] + w[::10] / diagonal
                variance = np.exp(2 * u[::10] @ w[::10].T) * np.expm1(np.sum(z**2, axis=-1))
                found[name] += float(variance.mean()) / 4
    return {name: float(f"{error:.3g}") for name, error in found.items()}


def errors(name: str, count: int) -> Any:
    """(clusters or None, x, y) -> mean squared error of each draw, [REPETITIONS]."""
    fm = feature_map(SPECS[name].format(count))
    keys = jax.random.split(jax.random.key(count), REPETITIONS)

    @jax.jit
    def all_draws(clusters: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        exact = jnp.exp(x @ y.T)

        def one(key: jax.Array) -> jax.Array:
            features = fm.init(key, DIM)
            features = features if clusters is None else features._replace(clusters=clusters)
            return jnp.mean((kernel_estimate(fm, features, x, y) - exact) ** 2)

        return jax.lax.map(one, keys)

    return all_draws


def compute() -> Result:
    samples = {name: sample(name, seed) for seed, name in enumerate(LISTS)}
    sides = {name: [jnp.asarray(s, jnp.float32) for s in (x, y)] for name, (x, y, _) in samples.items()}
    data: Result = {}
    for name, (x, y, scale) in samples.items():
        found = reached(x, y)
        data[name] = {"scale": scale, "s": LISTS[name][1], "s_reached": np.round(found, 4).tolist()}
        data[name]["m_times_error_by_bounds"] = bounds(x, y)
    table: Result = {name: {method: {} for method in SPECS} for name in LISTS}
    for method in SPECS:
        clusters = dict.fromkeys(LISTS)
        if "clustered" in SPECS[method]:
            fm = feature_map(SPECS[method].format(1))
            fitted = {name: fit(fm, jax.random.key(0), *both) for name, both in sides.items()}
            clusters = {name: features.clusters for name, features in fitted.items()}
        for count in ENDS if method == "complex matrices" else COUNTS:
            run_all = errors(method, count)
            for name, (x, y) in sides.items():
                mse = np.asarray(run_all(clusters[name], x[::2], y[::4]), np.float64)
                row = {"min": mse.min(), "mean": mse.mean(), "max": mse.max()}
                table[name][method][str(count)] = {k: float(f"{v:.3g}") for k, v in row.items()}
    return {"data": data, "mse": table, "published_1e-4": PUBLISHED, "claims": claims(table)}


def claims(table: Result) -> list[Result]:
    made = []
    for name, methods in table.items():
        hybrid = methods["clustered_hybrid"]
        for other in ("positive", "positive_antithetic", "trigonometric"):
            known = PUBLISHED[name].get(other)
            for place, end in enumerate(("min", "max")):
                below = [hybrid[str(c)][end] < methods[other][str(c)][end] for c in COUNTS]
                pairs = zip(PUBLISHED[name]["clustered_hybrid"], known or (), strict=False)
                times = sum(a[place] < b[place] for a, b in pairs)
                made.append(
                    {
                        "claim": f"{name}: {end} error of hybrid below {other}, times of 7 counts",
                        "published": f"{times}" if known else "not given",
                        "measured": f"{sum(below)}",
                        "reached": sum(below) >= (times if known else len(COUNTS)),
                    }
                )
        for method, known in PUBLISHED[name].items():
            rows = [methods[method][str(c)] for c in COUNTS]
            ours = np.mean([np.log(row["min"] * row["max"]) / 2 for row in rows])
            theirs = np.mean([np.log(1e-8 * a * b) / 2 for a, b in known])
            made.append(
                {
                    "claim": f"{name}: {method}, geometric mean of min and max over all feature counts",
                    "published": f"{np.exp(theirs):.2e}, reached within a factor of 2",
                    "measured": f"{np.exp(ours):.2e}",
                    "reached": bool(abs(ours - theirs) < np.log(2)),
                }
            )
    return made


def draw(result: Result) -> Figure:
    figure, axes = plt.subplots(1, len(LISTS), figsize=(13, 3.6), sharey=True)
    for (name, methods), panel in zip(result["mse"].items(), axes, strict=True):
        for place, method in enumerate(
            ("positive", "positive_antithetic", "trigonometric", "clustered_hybrid")
        ):
            rows = [methods[method][str(c)] for c in COUNTS]
            mean = np.array([row["mean"] for row in rows])
            ends = [mean - [row["min"] for row in rows], [row["max"] for row in rows] - mean]
            where = np.array(COUNTS) + 2.0 * (place - 1.5)
            panel.errorbar(where, mean, ends, color=COLOURS[method], capsize=2, linewidth=1, label=method)
            known = result["published_1e-4"][name].get(method, [])
            for point, (low, high) in zip(where, known, strict=False):
                panel.plot([point] * 2, [1e-4 * low, 1e-4 * high], "x", markersize=3, color=COLOURS[method])
        panel.set(title=name, xlabel="random vectors m", yscale="log")
    axes[0].set_ylabel("mean squared error")
    axes[0].legend(fontsize=7, title="mean, min to max; × published", title_fontsize=7)
    return figure


if __name__ == "__main__":
    run("hrf_table3", compute, draw, __doc__)
