"""What every script in this folder leaves behind: NAME.json with the numbers and NAME.png with the picture.

Results go to `benchmarks/papers/results`, or to the folder given as `--out`; `--draw` draws the numbers
that are there already.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from robopolicy.viz.pictures import save, styled
from robopolicy.writing import write_atomically

Result = dict[str, Any]

# One colour a mechanism, the same in every picture; they differ in grey as well.
COLOURS = {
    "trigonometric": "#d55e00",
    "positive": "#56b4e9",
    "positive_antithetic": "#0072b2",
    "optimal_positive": "#009e73",
    "angular_hybrid": "#000000",
    "gaussian_hybrid": "#cc79a7",
    "clustered_hybrid": "#000000",
    "iid": "#d55e00",
    "orthogonal": "#0072b2",
    "hadamard": "#56b4e9",
    "simplex": "#009e73",
    "simplex_plus": "#000000",
    "halton": "#cc79a7",
}


def run(
    name: str, compute: Callable[[], Result], draw: Callable[[Result], Figure], about: str | None
) -> None:
    """Compute, draw and write both files. `about` is the script's docstring, shown by --help.

    A result holds a `claims` list of {"claim", "published", "measured", "reached"} beside its own numbers;
    each is printed as one line.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--draw", action="store_true", help="draw the kept numbers again")
    given = parser.parse_args()
    out: Path = given.out
    kept = out / f"{name}.json"
    started = time.perf_counter()
    if given.draw:
        result = json.loads(kept.read_text())
    else:
        result = compute()
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(kept, json.dumps(result, indent=1, allow_nan=False) + "\n")
    with styled():
        figure = draw(result)
        save(figure, out / f"{name}.png")
    plt.close(figure)
    print(f"{name}: {time.perf_counter() - started:.0f} s, {out / name}.json and .png")
    for claim in result["claims"]:
        verdict = "reached" if claim["reached"] else "NOT REACHED"
        print(f"  {claim['claim']}: published {claim['published']}, measured {claim['measured']} ({verdict})")
