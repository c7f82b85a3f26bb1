"""Mechanisms and controls on every preset of the stepping stones, each trained with several seeds.

    python benchmarks/stones.py                   the tables, from the trainings that are kept
    python benchmarks/stones.py --keep GRID       adds the complete trainings of a grid
    python benchmarks/stones.py --ship RUN NAME   makes a run that is kept a policy of the package

A grid is, on `dust` for example,

    robopolicy grid GRID --attention SPEC ... all "all, relu" "all, cnn" none --seeds 0 1 2 3 4 \\
        --preset dust --episodes 2 --generations 15 --test-engines mujoco bullet

On `front`, where hind legs have no camera, it is

    robopolicy grid GRID --variant memory --attention "trigonometric(m=32)" all "all, map" "all, gru" none \\
        --seeds 0 1 2 3 4 --preset front --episodes 2 --generations 25 --test-engines mujoco bullet

with `all` as the control without a memory. On `dust`, all legs may read a memory of the front camera:

    robopolicy grid GRID --variant memory --memory-for all --cameras front \\
        --attention "trigonometric(m=256)" "all, map" --seeds 0 1 2 \\
        --preset dust --episodes 2 --generations 15 --test-engines mujoco bullet

Its controls are those with both cameras, of the first grid. Other trainings have twice the episodes, and
begin with harder images or with easier stones:

    robopolicy grid GRID --variant memory --memory-for all --cameras front --attention "all, map" \\
        --seeds 0 1 2 --preset dust-thick dust --stage-limit 15 --advance-at 100 --episodes 4 \\
        --generations 20 --engine mujoco --policy-runtime c --test-engines mujoco bullet
    robopolicy grid GRID --attention all "all, cnn" none --seeds 0 1 2 --preset hard extreme \\
        --stage-limit 10 --advance-at 100 --episodes 4 --generations 30 --held-out 60 \\
        --engine mujoco --policy-runtime c --test-engines mujoco bullet

No mean return is 100, so the stage limit ends the first stage. On the Go2, the grid is

    robopolicy grid GRID --robot go2 --engine mujoco --attention SPEC all none --seeds 0 1 2 \\
        --preset paper --episodes 2 --generations 12 --test-engines mujoco bullet

Every policy plays 100 unseen courses (seeds 9000 on) of its preset on both engines.

The best policy is the one with the highest mean return, at the end of its trainings, on the held-out courses:
not on the test courses, which would choose it by chance results, too.

Expected, as means of three seeds or more of the best policy, on both engines: at least 95 % of the courses on
`hard` and `dust`, 80 % on `sparse`, 60 % on `extreme`, 90 % on `front`, there at least 30 points above the
control without a memory; and at most 5 % without an image.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import jax
import numpy as np
from jax.tree_util import keystr

from robopolicy.experiments.comparison import rows_of, titles
from robopolicy.experiments.comparison_table import table
from robopolicy.experiments.runs import load
from robopolicy.experiments.trainings import apart, search_settings, training
from robopolicy.policies.base import unflatten
from robopolicy.policies.catalogue import restore
from robopolicy.policies.memories import SHORTEST, WAVES

KEPT = Path(__file__).parent / "stones"
SHIPPED = Path(__file__).parents[1] / "robopolicy" / "assets" / "policies"
ENGINES = ("mujoco", "bullet")
PARTS = ("policy", "environment", "es")  # of a config.json
SEEDS = 3  # the fewest of a claim
LEAST = {"sparse": 80, "extreme": 60, "front": 90, "paper-go2": 90}  # percent; 95 elsewhere
ABOVE = {"front": ("all", 30)}  # a control, and by how many points at least the best policy is above it


def courses_of(config: dict) -> str:
    """The preset that a run was trained on last, its cameras and its robot if they are not the default."""
    others = config["environment"].get("others", {})
    robot = others.get("robot")
    robot = robot["name"] if isinstance(robot, dict) else robot
    parts = [config["environment"]["presets"][-1], *others.get("cameras", ()), robot]
    return "-".join(filter(None, parts))


def keep(grid: Path) -> None:
    """Add the trained and evaluated runs of a grid to the file of its preset."""
    for run in sorted(path.parent for path in grid.glob("*/config.json")):
        evaluation = run / "evaluation.json"
        if not evaluation.is_file() or not set(ENGINES) <= json.loads(evaluation.read_text()).keys():
            print(f"{run.name} is not complete")
            continue
        name = f"{grid.name}/{run.name}"
        config = json.loads((run / "config.json").read_text())
        log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        path = KEPT / f"{courses_of(config)}.json"
        kept = json.loads(path.read_text()) if path.exists() else {}
        kept[name] = {
            **{name: config[name] for name in ("policy", "environment", "es", "flops", "versions")},
            "steps": sum(line.get("steps", 0) for line in log),
            **kernel_widths(run),
            "curve": [
                [line["generation"], round(line["held_out/return"], 3), line["held_out/success"]]
                for line in log
                if "held_out/return" in line
            ],
            "evaluations": {
                engine: {
                    **result,
                    "policy": name,
                    "seeds": [result["seeds"][0], result["seeds"][-1]],
                    "returns": [round(value, 3) for value in result["returns"]],
                }
                for engine, result in json.loads(evaluation.read_text()).items()
            },
        }
        KEPT.mkdir(exist_ok=True)
        lines = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def kernel_widths(run: Path) -> dict[str, list[float]]:
    """`kernels_cm`: standard deviations of the kernels of distance that memories have learned."""
    policy = load(run)
    parameters = jax.tree_util.tree_leaves_with_path(unflatten(policy.functions)(policy.parameters))
    lengths = [float(np.exp(leaf)) for path, leaf in parameters if "radius" in keystr(path)]
    waves = 2 * np.pi / (SHORTEST * WAVES) * np.arange(1, WAVES + 1)
    widths = [round(100 / (length * float(np.sqrt(np.mean(waves**2) / 2))), 2) for length in lengths]
    return {"kernels_cm": widths} if widths else {}


def ship(run: Path, name: str) -> None:
    """Copy config, log, evaluation and last checkpoint of a run to the package."""
    kept = json.loads((run / "evaluation.json").read_text())
    last = max((run / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    with tempfile.TemporaryDirectory(dir=SHIPPED) as made:
        shutil.copytree(last, Path(made, "checkpoints", last.name))
        for file in ("config.json", "metrics.jsonl"):
            shutil.copy(run / file, Path(made, file))
        stored = {engine: {**result, "policy": name} for engine, result in kept.items()}
        Path(made, "evaluation.json").write_text(json.dumps(stored) + "\n")
        shutil.rmtree(SHIPPED / name, ignore_errors=True)
        shutil.copytree(made, SHIPPED / name)
    print(SHIPPED / name)


def tables(preset: str, kept: dict[str, dict]) -> bool:
    """Print the tables of a preset; whether the claims hold."""
    groups: dict = {}
    configs = {name: {part: run[part] for part in PARTS} for name, run in kept.items()}
    trainings = [training(name, config) for name, config in configs.items()]
    for (name, config), copies in zip(configs.items(), apart(list(kept), trainings), strict=True):
        settings = json.dumps(search_settings(config))
        groups.setdefault((restore(config["policy"]), settings, copies), []).append(name)
    together = [(config, names) for (config, *_), names in groups.items()]
    crossed: dict = {}
    held_out: dict = {}
    for engine in ENGINES:
        results = {name: run["evaluations"][engine] for name, run in kept.items()}
        rows = rows_of(together, results, {})
        print(table(rows, f"{preset}, {engine}"), end="\n\n")
        for row, title in zip(rows, titles(rows), strict=True):
            rates = [results[name]["success_rate"] for name in row["runs"]]
            crossed.setdefault((title, len(rates)), []).append(100 * float(np.mean(rates)))
            every = [kept[name]["kernels_cm"] for name in row["runs"] if "kernels_cm" in kept[name]]
            widths = [" and ".join(f"{width:.1f}" for width in widths) for widths in every]
            if widths and engine == ENGINES[0]:
                print(f"{title} learned kernels of {', '.join(widths)} cm", end="\n\n")
            ends = [kept[name]["curve"][-1] for name in row["runs"]]
            held_out[title, len(rates)] = float(np.mean([value for _, value, _ in ends]))
    least = LEAST.get(preset, 95)
    best = max(held_out, key=lambda row: held_out[row])
    blind = next((row for row in crossed if row[0] == "none"), None)
    held = [said(f"the best policy crosses {least} % or more", best, crossed, min(crossed[best]) >= least)]
    if preset in ABOVE:
        control, points = ABOVE[preset]
        lower = next((row for row in crossed if row[0] == control), None)
        gaps = [a - b for a, b in zip(crossed[best], crossed.get(lower, crossed[best]), strict=True)]
        held.append(said(f"it crosses {points} points more than this", lower, crossed, min(gaps) >= points))
    holds = blind is not None and max(crossed[blind]) <= 5
    held.append(said("without an image, at most 5 % are crossed", blind, crossed, holds))
    print()
    return all(held)


def said(claim: str, row: tuple[str, int] | None, crossed: dict, holds: bool) -> bool:
    """Print whether a claim holds of a row of `crossed`; fewer than three seeds do not show it."""
    holds = holds and row is not None and row[1] >= SEEDS
    found = "not trained yet"
    if row is not None:
        found = f"{row[0]}, {row[1]} seeds, {', '.join(f'{rate:.0f} %' for rate in crossed[row])}"
    print(f"{'yes' if holds else 'NO ':4}{claim}: {found}")
    return holds


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
