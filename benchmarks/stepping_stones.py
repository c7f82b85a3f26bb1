"""Walkers on stepping stones: attention mechanisms against each other, from run logs and shipped policies.

    python benchmarks/stepping_stones.py                  # the table, and docs/images/stepping-stones.png
    python benchmarks/stepping_stones.py --evaluate       # the shipped policies on 100 unseen courses of each
                                                          # engine again, some ten minutes on 2 cores
    python benchmarks/stepping_stones.py --keep RUN ...   # evaluates runs and keeps their curves
    python benchmarks/stepping_stones.py --ship RUN       # makes a kept run a policy of the package

A run is

    robopolicy train es --attention SPEC --seed SEED --out RUN --engine mujoco --stop-at 7.5

with SPEC one of `angular_hybrid(m=8, n=8)`, `positive_antithetic(m=256)` and `softmax`; or what
`robopolicy plan --task stepping-stones --budget 671046` chooses for half the FLOPs of the hybrid,
`optimal_positive(m=32, coupling=halton)` with `--head-dim 4`; or a control, `none`, `all`, and `all` with
`--encoder relu` or `cnn`. Without `--engine mujoco`, training uses the engine jax. Bullet is an engine that
the policies have never seen.

Expected, on 100 courses (seeds 9000 on) of each engine: the hybrid crosses at least 90, positive features
with 256 projections are within 10 points of it, the planned policy within 5, and so is the control `all`,
which has no attention; a policy that is given no image crosses at most 20. In training, the mean return on
twenty held-out courses rises by more than the spread between seeds.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

import robopolicy
from robopolicy.policies.catalogue import restore
from robopolicy.writing import write_atomically

HERE = Path(__file__).parent
KEPT = HERE / "stepping_stones"
FIGURE = HERE.parent / "docs" / "images" / "stepping-stones.png"
SHIPPED = HERE.parent / "robopolicy" / "assets" / "policies"
ENGINES = ("mujoco", "bullet")
EPISODES = 100
NAMES = {
    "angular_hybrid(m=8, n=8)": "angular-8x8",
    "positive_antithetic(m=256)": "positive-256",
    "softmax": "softmax",
    "optimal_positive(m=32, coupling=halton)": "planned",
    "none": "no-vision",
    "all": "no-attention",
    "all, relu": "relu",
    "all, cnn": "cnn",
}
COLOURS = dict(zip(NAMES.values(), ("C0", "C1", "C2", "C4", "C7", "C3", "C5", "C8"), strict=True))


def name_of(attention: str) -> str:
    """The name of a row. Exits, in one line, if the comparison has no such row."""
    if attention not in NAMES:
        raise SystemExit(f"the attention is {attention!r}: it must be one of {', '.join(map(repr, NAMES))}")
    return NAMES[attention]


def evaluations(policy: str) -> dict[str, dict]:
    """How a policy does on every engine, each played in a process of its own."""
    commands = {
        engine: [
            *(sys.executable, "-m", "robopolicy", "evaluate", policy, "--json"),
            *("--episodes", str(EPISODES), "--engine", engine),
        ]
        for engine in ENGINES
    }
    running = {e: subprocess.Popen(command, stdout=subprocess.PIPE) for e, command in commands.items()}
    said = {engine: process.communicate()[0] for engine, process in running.items()}
    if any(process.returncode for process in running.values()):
        raise SystemExit(f"{policy} could not be evaluated")
    return {engine: json.loads(text) | {"policy": Path(policy).name} for engine, text in said.items()}


def keep(run: Path) -> None:
    """Evaluate a run and keep its curve, its config and its evaluations as one JSON."""
    config = json.loads((run / "config.json").read_text())
    attention = restore(config["policy"]).label
    name = f"{name_of(attention)}-seed-{config['es']['seed']}"
    curve = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    kept = {
        "attention": attention,
        "flops_per_step": robopolicy.flops(robopolicy.load(run)).total,
        "config": config,
        "curve": [{k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in curve],
        "evaluations": evaluations(str(run)),
    }
    KEPT.mkdir(exist_ok=True)
    write_atomically(KEPT / f"{name}.json", json.dumps(kept) + "\n")
    print(name, {e: played["success_rate"] for e, played in kept["evaluations"].items()})


def ship(run: Path) -> None:
    """Copy config, log and last checkpoint of a kept run to the package, with its evaluations."""
    config = json.loads((run / "config.json").read_text())
    name = name_of(restore(config["policy"]).label)
    kept = json.loads((KEPT / f"{name}-seed-{config['es']['seed']}.json").read_text())
    out = SHIPPED / f"stepping-stones-{name}"
    shutil.rmtree(out, ignore_errors=True)
    last = max((run / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    shutil.copytree(last, out / "checkpoints" / last.name)
    for file in ("config.json", "metrics.jsonl"):
        shutil.copy(run / file, out / file)
    (out / "evaluation.json").write_text(json.dumps(kept["evaluations"]) + "\n")
    print(out)


def runs() -> dict[str, list[dict]]:
    """Kept runs by the name of their mechanism."""
    every = [json.loads(path.read_text()) for path in sorted(KEPT.glob("*-seed-*.json"))]
    return {name: [r for r in every if r["attention"] == spec] for spec, name in NAMES.items()}


def ships(name: str) -> bool:
    """Whether a policy of this name ships; the controls do not."""
    return _evaluation(name).exists()


def _evaluation(name: str) -> Path:
    return SHIPPED / f"stepping-stones-{name}" / "evaluation.json"


def table(kept: dict[str, list[dict]]) -> bool:
    """Print success on both engines, seed by seed; whether the claims hold."""
    print(f"{'':14}{'FLOPs a step':>14}  " + "".join(f"{engine:>34}" for engine in ENGINES))
    means = {}
    for name, group in kept.items():
        if not group:
            continue
        cells = []
        for engine in ENGINES:
            rates = [100 * run["evaluations"][engine]["success_rate"] for run in group]
            means[name, engine] = float(np.mean(rates))
            spread = f" +- {np.std(rates, ddof=1):.0f}" if len(rates) > 1 else ""
            cells.append(f"{np.mean(rates):.0f}{spread} % ({', '.join(f'{r:.0f}' for r in rates)})")
        print(f"{name:14}{group[0]['flops_per_step']:14,}  " + "".join(f"{cell:>34}" for cell in cells))
    shipped = {
        (name, engine): 100 * json.loads(_evaluation(name).read_text())[engine]["success_rate"]
        for name in filter(ships, NAMES.values())
        for engine in ENGINES
    }
    control = [means.get(("no-attention", engine), 0.0) for engine in ENGINES]
    hybrid = [means["angular-8x8", engine] for engine in ENGINES]
    as_good = min(np.subtract(control, hybrid)) >= -5
    words = "no-attention crosses as many courses as angular-8x8, less 5 at most"
    print(f"{'yes' if as_good else 'NO ':4}{words}: {', '.join(f'{rate:.0f} %' for rate in control)}")
    return all([learns(kept["angular-8x8"]), as_good, claims(shipped)])


def learns(group: list[dict]) -> bool:
    """Print whether the mean held-out return of these seeds rises by more than the spread between them."""
    returns = [[r["held_out/return"] for r in run["curve"] if "held_out/return" in r] for run in group]
    first, last = np.array([[r[0], r[-1]] for r in returns]).T
    rise, spread = last.mean() - first.mean(), max(first.std(ddof=1), last.std(ddof=1))
    ends = ", ".join(f"{value:.2f}" for value in last)
    print(
        f"{'yes' if rise > spread else 'NO ':4}held-out return of angular-8x8 rises from {first.mean():.2f} "
        f"to {ends}: by {rise:.2f}, spread between seeds {spread:.2f}"
    )
    return bool(rise > spread)


def claims(rates: dict[tuple[str, str], float]) -> bool:
    """Print each claim about the shipped policies and whether their success rates (%) bear it out."""
    checks = []
    for engine in ENGINES:
        hybrid = rates.get(("angular-8x8", engine), 0.0)
        positive = rates.get(("positive-256", engine), 0.0)
        blind = rates.get(("no-vision", engine), 100.0)
        planned = rates.get(("planned", engine), 0.0)
        checks += [
            (f"{engine}: angular-8x8 {hybrid:.0f} % >= 90 %", hybrid >= 90),
            (f"{engine}: positive-256 {positive:.0f} % within 10 points", abs(positive - hybrid) <= 10),
            (f"{engine}: planned {planned:.0f} % at most 5 points lower", planned >= hybrid - 5),
            (f"{engine}: no-vision {blind:.0f} % <= 20 %", blind <= 20),
        ]
    for words, holds in checks:
        print(f"{'yes' if holds else 'NO ':4}{words}")
    return all(holds for _, holds in checks)


def draw(kept: dict[str, list[dict]]) -> None:
    """Held-out return over generations, and over the FLOPs that the policy's steps have cost."""
    from robopolicy.viz.pictures import picture

    with picture(FIGURE, (10, 3.8)) as figure:
        axes = figure.subplots(1, 2, sharey=True)
        for name, group in kept.items():
            for number, run in enumerate(group):
                steps = np.cumsum([r.get("steps", 0) for r in run["curve"]])
                held = [i for i, r in enumerate(run["curve"]) if "held_out/return" in r]
                returns = [run["curve"][i]["held_out/return"] for i in held]
                style = {"color": COLOURS[name], "marker": ".", "label": name if number == 0 else None}
                axes[0].plot([run["curve"][i]["generation"] for i in held], returns, **style)
                if name != "no-vision":  # a thousandth of the others' FLOPs, and at the bottom
                    spent = steps[held[1:]] * run["flops_per_step"]
                    axes[1].plot(spent, returns[1:], **style)
        axes[0].set(xlabel="generation", ylabel="return on twenty held-out courses")
        axes[1].set(xlabel="FLOPs of all policy steps in training", xscale="log")
        axes[0].legend()
    print(FIGURE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--evaluate", action="store_true", help="play the shipped policies again")
    parser.add_argument("--keep", nargs="+", type=Path, default=[], metavar="RUN")
    parser.add_argument("--ship", nargs="+", type=Path, default=[], metavar="RUN")
    given = parser.parse_args()
    for run in given.keep:
        keep(run)
    for run in given.ship:
        ship(run)
    if given.keep or given.ship:
        return 0
    if given.evaluate:
        rates = {}
        for name in filter(ships, NAMES.values()):
            played = evaluations(f"stepping-stones-{name}")
            rates |= {(name, engine): 100 * r["success_rate"] for engine, r in played.items()}
        return 0 if claims(rates) else 1
    kept = runs()
    draw(kept)
    return 0 if table(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
