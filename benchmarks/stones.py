"""Mechanisms and controls on every preset of the stepping stones, each trained with several seeds.

    python benchmarks/stones.py                   the tables, from the trainings that are kept
    python benchmarks/stones.py --keep GRID       adds the complete trainings of a grid
    python benchmarks/stones.py --ship RUN NAME   makes a run that is kept a policy of the package

A grid is, with a preset such as `sparse`,

    robopolicy grid GRID --attention SPEC ... all "all, relu" "all, cnn" none --seeds 0 1 2 3 4 \\
        --preset PRESET --episodes 2 --generations 15 --test-engines mujoco bullet

Trainings on `sparse` need `--engine mujoco`. Every policy plays 100 unseen courses (seeds 9000 on) of its
preset on both engines.

Expected, as means of three seeds or more of the best policy, on both engines: at least 95 % of the courses on
`hard` and `dust`, 80 % on `sparse`, 60 % on `extreme`; and at most 5 % without an image.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np

from robopolicy.experiments.comparison import rows_of
from robopolicy.experiments.comparison_table import table
from robopolicy.policies.catalogue import restore

KEPT = Path(__file__).parent / "stones"
SHIPPED = Path(__file__).parents[1] / "robopolicy" / "assets" / "policies"
ENGINES = ("mujoco", "bullet")
LEAST = {"hard": 95, "dust": 95, "sparse": 80, "extreme": 60}  # percent


def preset_of(config: dict) -> str:
    """The preset that a run was trained on last."""
    return config["environment"]["presets"][-1]


def keep(grid: Path) -> None:
    """Add the trained and evaluated runs of a grid to the file of its preset."""
    for run in sorted(path.parent for path in grid.glob("*/config.json")):
        evaluation = run / "evaluation.json"
        if not evaluation.is_file() or not set(ENGINES) <= json.loads(evaluation.read_text()).keys():
            print(f"{run.name} is not complete")
            continue
        config = json.loads((run / "config.json").read_text())
        log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        path = KEPT / f"{preset_of(config)}.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[run.name] = {
            **{name: config[name] for name in ("policy", "environment", "es", "flops", "versions")},
            "steps": sum(line.get("steps", 0) for line in log),
            "curve": [
                [line["generation"], round(line["held_out/return"], 3), line["held_out/success"]]
                for line in log
                if "held_out/return" in line
            ],
            "evaluations": {
                engine: {
                    **result,
                    "policy": run.name,
                    "seeds": [result["seeds"][0], result["seeds"][-1]],
                    "returns": [round(value, 3) for value in result["returns"]],
                }
                for engine, result in json.loads(evaluation.read_text()).items()
            },
        }
        KEPT.mkdir(exist_ok=True)
        lines = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def ship(run: Path, name: str) -> None:
    """Copy config, log, evaluation and last checkpoint of a run to the package."""
    out = SHIPPED / name
    shutil.rmtree(out, ignore_errors=True)
    last = max((run / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    shutil.copytree(last, out / "checkpoints" / last.name)
    for file in ("config.json", "metrics.jsonl"):
        shutil.copy(run / file, out / file)
    kept = json.loads((run / "evaluation.json").read_text())
    stored = {engine: {**result, "policy": name} for engine, result in kept.items()}
    (out / "evaluation.json").write_text(json.dumps(stored) + "\n")
    print(out)


def tables(preset: str, kept: dict[str, dict]) -> bool:
    """Print the tables of a preset; whether the claims hold."""
    groups: dict = {}
    for name, run in kept.items():
        groups.setdefault(restore(run["policy"]), []).append(name)
    crossed: dict = {}
    for engine in ENGINES:
        results = {name: run["evaluations"][engine] for name, run in kept.items()}
        rows = rows_of(list(groups.items()), results, {})
        print(table(rows, f"{preset}, {engine}"), end="\n\n")
        for row in rows:
            rates = [results[name]["success_rate"] for name in row["runs"]]
            crossed.setdefault(row["label"], []).append(100 * float(np.mean(rates)))
    seeds = {config.label: len(names) for config, names in groups.items()}
    best = max((label for label in crossed), key=lambda label: min(crossed[label]))
    claims = {f"the best policy crosses {LEAST.get(preset, 95)} %": (best, min(crossed[best]), True)}
    if "none" in crossed:
        claims["without an image, at most 5 % are crossed"] = ("none", max(crossed["none"]), False)
    held = True
    for words, (label, rate, is_least) in claims.items():
        holds = rate >= LEAST.get(preset, 95) if is_least else rate <= 5
        held = held and holds
        rates = ", ".join(f"{value:.0f} %" for value in crossed[label])
        print(f"{'yes' if holds else 'NO ':4}{words}: {label}, {seeds[label]} seeds, {rates}")
    print()
    return held


def main() -> None:
    """Run as the docstring of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", metavar="GRID", type=Path, nargs="+", default=[])
    parser.add_argument("--ship", metavar=("RUN", "NAME"), nargs=2)
    options = parser.parse_args()
    for grid in options.keep:
        keep(grid)
    if options.ship:
        ship(Path(options.ship[0]), options.ship[1])
    held = [tables(path.stem, json.loads(path.read_text())) for path in sorted(KEPT.glob("*.json"))]
    raise SystemExit(0 if all(held) else 1)


if __name__ == "__main__":
    main()
