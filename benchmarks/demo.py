"""The demo's learning, from three seeds.

Each seed is the training command of `make demo`, with another --seed:

    robopolicy train es --task stepping-stones --attention "angular_hybrid(m=8, n=8)" \
        --population 32 --generations 24 --evaluate-every 6 --seed SEED --out runs/demo-SEED

`python benchmarks/demo.py runs/demo-0 runs/demo-1 runs/demo-2` keeps the curve of each run as a JSON in
benchmarks/demo/; without arguments it prints them and checks the claim.

Expected: the policy's mean return on ten held-out courses of real stones is higher at the last generation
than before the first by more than the spread between seeds (their standard deviation). The population's own
mean is printed too, but no claim rests on it: it starts on painted stones, whose returns are higher, and ends
on real ones.
"""

import json
import sys
from pathlib import Path

import numpy as np

KEPT = Path(__file__).parent / "demo"
CURVE = ("generation", "environment", "return_mean", "return_best", "distance", "success")
HELD_OUT = ("held_out/return", "held_out/distance", "held_out/success")


def keep(run: Path) -> None:
    """Write the curve of one run to benchmarks/demo/."""
    config = json.loads((run / "config.json").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    curve = [{name: r[name] for name in (*CURVE, *HELD_OUT) if name in r} for r in records]
    kept = {"seed": config["es"]["seed"], "attention": config["policy"]["attention"], "curve": curve}
    kept |= {"es": config["es"], "versions": config["versions"]}
    KEPT.mkdir(exist_ok=True)
    (KEPT / f"seed-{kept['seed']}.json").write_text(json.dumps(kept, indent=1) + "\n")


def check() -> bool:
    """Print what was kept; whether the claim holds."""
    runs = [json.loads(path.read_text()) for path in sorted(KEPT.glob("seed-*.json"))]
    for run in runs:
        trained = [r for r in run["curve"] if "return_mean" in r]
        held_out = [r for r in run["curve"] if "held_out/return" in r]
        ends = [f"{r['return_mean']:.2f} ({r['environment']})" for r in (trained[0], trained[-1])]
        returns = " -> ".join(f"{r['held_out/return']:.2f}" for r in held_out)
        last = held_out[-1]
        print(
            f"seed {run['seed']}: population {' -> '.join(ends)};  held-out {returns}, "
            f"{last['held_out/distance']:.1f} m, {last['held_out/success']:.0%} crossed"
        )
    curves = [[r["held_out/return"] for r in run["curve"] if "held_out/return" in r] for run in runs]
    first, last = np.array([c[0] for c in curves]), np.array([c[-1] for c in curves])
    rise, spread = last.mean() - first.mean(), max(first.std(ddof=1), last.std(ddof=1))
    print(f"held-out: {first.mean():.2f} -> {last.mean():.2f}, a rise of {rise:.2f}; spread {spread:.2f}")
    return bool(rise > spread)


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        keep(Path(folder))
    sys.exit(0 if check() else 1)
