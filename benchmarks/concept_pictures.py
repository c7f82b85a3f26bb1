"""The pictures of docs/concepts.md, drawn from the library's own maps, counts and policies.

    python benchmarks/concept_pictures.py                 # draws docs/images/concepts-*.svg, within a minute
    python benchmarks/concept_pictures.py --out FOLDER    # draws them elsewhere

Vectors are independent where a closed form of HRF stands beside what is measured, and seeds are fixed. The
last picture takes the shipped policy `stepping-stones-angular-8x8` and walks with it on MuJoCo.

Expected: measured errors lie on the closed forms of `robopolicy.attention.theory`; the hybrid has no error at
0 and at 180 degrees.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import EngFormatter

from robopolicy.attention import attention, feature_map, kernel_estimate
from robopolicy.attention.theory import (
    angular_hybrid_mse,
    positive_antithetic_mse,
    relative_error,
    trigonometric_mse,
)
from robopolicy.costs.flops import count
from robopolicy.envs.registry import make
from robopolicy.experiments.runs import load
from robopolicy.policies.base import unflatten
from robopolicy.viz.pictures import COLOURS, picture

OUT = Path(__file__).parent.parent / "docs" / "images"
DIM, DRAWS, ROUNDS = 8, 4000, 100  # so many draws, since rare ones decide the error of positive features
VECTORS, RUNS, PAIR = 4096, 6, np.pi / 3
ANGLES = np.linspace(0, np.pi, 13)
SHIPPED, SEED, STEPS = "stepping-stones-angular-8x8", 9000, 33
TRIGONOMETRIC, POSITIVE, HYBRID, EXACT = COLOURS[6], COLOURS[5], COLOURS[3], COLOURS[0]
NAMES = {"trigonometric": TRIGONOMETRIC, "positive_antithetic": POSITIVE, "angular_hybrid": HYBRID}


def pairs(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors x and y [A, DIM] at these angles."""
    x, y = np.zeros((2, len(angles), DIM), np.float32)
    x[:, 0] = 1
    y[:, 0], y[:, 1] = np.cos(angles), np.sin(angles)
    return x, y


def kernel(path: Path) -> None:
    """Estimates of one kernel value as vectors are added."""
    x, y = pairs(np.array([PAIR]))
    shown = np.unique(np.geomspace(1, VECTORS, 400).astype(int))
    with picture(path, (8, 3.2)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, (name, colour) in zip(panels, list(NAMES.items())[:2], strict=True):
            fm = feature_map(f"{name}(m={VECTORS}, coupling=iid)")
            for run in range(RUNS):
                features = fm.init(jax.random.key(run), DIM)
                products = np.asarray(fm.apply_q(features, x).values * fm.apply_k(features, y).values)[0]
                scale = np.exp(fm.apply_q(features, x).log_scale + fm.apply_k(features, y).log_scale)[0]
                # Vectors 0 to i alone: the two features of a vector, and 1/m in place of 1/VECTORS.
                each = VECTORS * scale * products.reshape(2, VECTORS).sum(axis=0)
                axes.plot(shown, np.cumsum(each)[shown - 1] / shown, color=colour, linewidth=0.9, alpha=0.75)
            axes.axhline(np.exp(np.cos(PAIR)), color=EXACT, linewidth=1.5, linestyle="--")
            axes.set_xscale("log")
            axes.set_title(name, fontsize=10)
            axes.set_xlabel("random vectors m")
            axes.set_ylim(0, 4)
        panels[0].set_ylabel("estimate of exp(x·y)")
        below = {"textcoords": "offset points", "color": EXACT}
        panels[0].annotate("exp(x·y)", (300, np.exp(np.cos(PAIR))), (0, -18), **below)


def measured(spec: str) -> np.ndarray:
    """Relative root mean squared error of a map at every angle, over draws of its features."""
    fm = feature_map(spec)
    x, y = pairs(ANGLES)
    exact = np.exp(np.cos(ANGLES))

    def estimates(key: jax.Array) -> jax.Array:
        return kernel_estimate(fm, fm.init(key, DIM), x, y).diagonal()

    @jax.jit
    def square_error(key: jax.Array) -> jax.Array:
        found = jax.vmap(estimates)(jax.random.split(key, DRAWS))
        return jax.numpy.mean((found - exact) ** 2, axis=0)

    rounds = [np.asarray(square_error(key)) for key in jax.random.split(jax.random.key(0), ROUNDS)]
    return np.sqrt(np.mean(rounds, axis=0)) / exact


def draw_errors(axes: Axes, spec: str, theory: np.ndarray, label: str, colour: str, marker: str) -> None:
    """A closed form as a line, what is measured as points."""
    dense = np.linspace(0, 180, len(theory))
    axes.plot(dense, theory, color=colour, label=label)
    axes.plot(
        np.degrees(ANGLES), measured(spec), marker, color=colour, markersize=4.5, markerfacecolor="white"
    )


def angle_axis(axes: Axes) -> None:
    axes.set_xlabel("angle between x and y, degrees")
    axes.set_xticks(range(0, 181, 45))
    axes.set_ylim(0, 1.85)
    axes.legend(frameon=False, fontsize=9, loc="upper center")


def variance(path: Path) -> None:
    """The two classic maps, and the hybrid of both at no more FLOPs a map."""
    dense = np.linspace(0, np.pi, 181)
    x, y = pairs(dense)
    trigonometric = relative_error(trigonometric_mse(x, y, 16), x, y)
    positive = relative_error(positive_antithetic_mse(x, y, 16), x, y)
    hybrid = relative_error(angular_hybrid_mse(x, y, 8, 8), x, y)
    with picture(path, (8, 3.6)) as figure:
        both, mixed = figure.subplots(1, 2, sharey=True)
        for axes in (both, mixed):
            draw_errors(
                axes,
                "trigonometric(m=16, coupling=iid)",
                trigonometric,
                "trigonometric(m=16)",
                TRIGONOMETRIC,
                "o",
            )
            draw_errors(
                axes,
                "positive_antithetic(m=16, coupling=iid)",
                positive,
                "positive_antithetic(m=16)",
                POSITIVE,
                "s",
            )
        draw_errors(
            mixed, "angular_hybrid(m=8, n=8, coupling=iid)", hybrid, "angular_hybrid(m=8, n=8)", HYBRID, "^"
        )
        both.set_ylabel("relative error of the kernel")
        both.set_title("two ways to be exact at one end", fontsize=10)
        mixed.set_title("weighed by the angle: exact at both", fontsize=10)
        for axes in (both, mixed):
            angle_axis(axes)


def boxes(axes: Axes, y: float, parts: Sequence[str | tuple[str, float, float, str]]) -> None:
    """A product from left to right at height y: signs, and matrices (name, width, height, colour)."""
    x = 0.0
    for part in parts:
        if isinstance(part, str):
            axes.text(x, y, part, ha="left", va="center", fontsize=15)
            x += 0.3 + 0.25 * len(part)
            continue
        name, width, height, colour = part
        corner = (x, y - height / 2)
        axes.add_patch(
            Rectangle(corner, width, height, facecolor=colour, edgecolor="black", linewidth=0.8, alpha=0.75)
        )
        axes.text(x + width / 2, y - height / 2 - 0.2, name, ha="center", va="top", fontsize=9)
        x += width + 0.35


def order(path: Path) -> None:
    """The two orders of the products, and what attention takes by number of tokens."""
    tokens = np.array([48, 96, 192, 384, 768, 1536, 3072])
    specs = {"softmax": EXACT, "positive_antithetic(m=256)": POSITIVE, "angular_hybrid(m=8, n=8)": HYBRID}
    with picture(path, (9, 3.8)) as figure:
        drawn, priced = figure.subplots(1, 2, width_ratios=(1, 1.1))
        drawn.text(0, 8.35, "exact: every query meets every key", fontsize=10)
        values = ("V, T × d", 0.6, 3.0, COLOURS[2])
        boxes(drawn, 6.2, [("exp(Q Kᵀ), T × T", 3, 3, COLOURS[1]), "·", values])
        drawn.text(0, 3.35, "linear: keys and values are summed first", fontsize=10)
        mapped = [("Q′, T × R", 1.2, 3, COLOURS[3]), ("K′ᵀ, R × T", 3, 1.2, COLOURS[3])]
        boxes(drawn, 1.2, [mapped[0], "· (", mapped[1], "·", values, ")"])
        drawn.set_xlim(-0.3, 7.9)
        drawn.set_ylim(-1.2, 8.8)
        drawn.axis("off")
        for spec, colour in specs.items():
            mechanism = attention(spec)
            features = mechanism.init(jax.random.key(0), DIM)
            prices = []
            for number in tokens:
                head = jax.ShapeDtypeStruct((int(number), DIM), np.float32)
                prices.append(count(mechanism.apply, features, head, head, head).total)
            priced.plot(tokens, prices, "o-", color=colour, markersize=4, label=spec)
        priced.set_xscale("log", base=2)
        priced.set_yscale("log")
        priced.set_xticks(tokens, [str(number) for number in tokens])
        priced.yaxis.set_major_formatter(EngFormatter(sep=" "))
        priced.set_xlabel("tokens")
        priced.set_ylabel("FLOPs of attention, one head, d = 8")
        priced.legend(frameon=False, fontsize=9)


def ranking(path: Path) -> None:
    """One depth image of a walking policy: what it sees, how tokens rank, what it keeps."""
    trained = load(SHIPPED)
    parameters = unflatten(trained.functions)(trained.parameters)
    act = jax.jit(trained.functions.act)
    env = make("stepping-stones", engine="mujoco")
    (observation, _), state = env.reset(seed=SEED), trained.init_state()
    for _ in range(STEPS):
        seen = {name: observation[name] for name in trained.functions.observation_shapes}
        action, state = act(parameters, trained.features, seen, state)
        observation, *_ = env.step(np.asarray(action))
    env.close()
    seen = {name: observation[name] for name in trained.functions.observation_shapes}
    head = trained.functions.attended(parameters, trained.features, seen, state)[0]
    config = trained.config
    grid = config.grid(config.readers[0].views[0])
    draw = trained.features["draws"]["front"]
    scores = attention(config.attention).rank(draw, head.q[0], head.k[0])
    exact = attention("softmax").rank((), head.q[0], head.k[0])
    kept = trained.functions.inspect(parameters, trained.features, seen, state)[0]["kept/front_depth"]
    shown = [
        ("depth, metres", seen["front_depth"], "Greys"),
        ("rank by the hybrid", np.reshape(scores, grid), "cividis"),
        ("rank by exact softmax", np.reshape(exact, grid), "cividis"),
        ("kept: the top half", np.asarray(kept, float), colormaps["Greys_r"].resampled(2)),
    ]
    with picture(path, (9, 2.6)) as figure:
        for axes, (title, image, colours) in zip(figure.subplots(1, 4), shown, strict=True):
            drawn = axes.imshow(image, cmap=colours, aspect="equal", extent=(0, 32, 24, 0))
            axes.set_title(title, fontsize=10)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.spines[:].set_visible(True)
            bar = figure.colorbar(drawn, ax=axes, orientation="horizontal", shrink=0.9, pad=0.06)
            if title.startswith("kept"):
                bar.set_ticks([0.25, 0.75], labels=["masked out", "kept"])


PICTURES = {"kernel": kernel, "variance": variance, "order": order, "ranking": ranking}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    out: Path = parser.parse_args().out
    for name, draw in PICTURES.items():
        draw(out / f"concepts-{name}.svg")
        print(out / f"concepts-{name}.svg")


if __name__ == "__main__":
    main()
