"""Policies cloned for the bimanual sweep: mechanisms, controls, frames and data, with several seeds each.

    python benchmarks/bimanual_sweep.py                  # the tables and claims, from trainings that are kept
    python benchmarks/bimanual_sweep.py --keep RUN ...   # plays 50 unseen seeds on both engines, and keeps it
    python benchmarks/bimanual_sweep.py --preset distracted --keep RUN ...
                                                         # the same on another preset
    python benchmarks/bimanual_sweep.py --ship RUN NAME  # makes a run that is kept a policy of the package
    python benchmarks/bimanual_sweep.py --picture        # draws docs/images/bimanual-sweep-cloned.png

A claim needs rollouts at the end of its trainings. For example, on the demonstrations of
docs/vision-performer.md,

    robopolicy train bc --steps 24000 --batch 8 --learning-rate 3e-3 --ema 0.9995 \\
        --rollouts 20 --validate-every 1000 --seed 0 --out runs/recipe-0 \\
        --data datasets/bullet-v0 datasets/mujoco-v0 datasets/bullet-5-v0 datasets/mujoco-5-v0

Trainings of one budget, which differ in seed, rollouts and policy but not in its patch, share a table. With
`--init`, this holds for the trainings that they began with, too. The table on 240 demonstrations (`robopolicy
demos --episodes 240 --noise 0.1`, on Bullet) is older: the mechanisms that HRF, Appendix K.2, compares, exact
softmax and a regression, with one training each.

The best policy is the one of three seeds or more that has the highest mean return in the rollouts at the end
of its trainings, which are on other seeds. Expected of it, as means: at least 99 % of the balls in bowls on
Bullet and 97 % on MuJoCo on `paper`, and 85 % on both on `distracted`.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from kept_trainings import (
    ENGINES,
    SEEDS,
    Found,
    Kept,
    Place,
    add,
    by_budget,
    kept_run,
    named_rows,
    plot_trainings,
    said,
    shipped_folder,
)

from robopolicy.envs.registry import task_class
from robopolicy.experiments.comparison_table import table
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import FIRST_SEED, evaluate, seeds_from
from robopolicy.experiments.statistics import interval
from robopolicy.training.checkpoint import BEST, FEATURES, MEAN, RunFolder
from robopolicy.training.metrics import ROLLOUT_RETURN
from robopolicy.viz.pictures import picture

HERE = Path(__file__).parent
KEPT = HERE / "bimanual_sweep" / "trained"
FIGURE = HERE.parent / "docs" / "images" / "bimanual-sweep-cloned.png"
TASK = "bimanual-sweep"
ALL, NO_IMAGE = "all", "none"  # controls
MARKS = {10: "o", 25: "s"}  # of patches in the picture
EPISODES = 50
LATE = 0.95  # of the steps: there, the recipe's schedule is below 2 % of its highest rate
LEAST = {"paper": {"bullet": 99, "mujoco": 97}, "distracted": {"bullet": 85, "mujoco": 85}}  # percent
CURVE = (
    "step", "loss", "images_per_second", "skipped", "seconds", "validation/loss", "validation/action_error",
    ROLLOUT_RETURN,
)  # fmt: skip


def keep(run: Path, preset: str, workers: int) -> None:
    """Evaluate a run on both engines, and add it to the file of the preset that it played.

    Raises ValueError or OSError, before it plays, for a folder without a cloning run that is complete or was
    stopped in its last steps.
    """
    config = json.loads((run / "config.json").read_text())
    if "bc" not in config:
        raise ValueError(f"RUN is {str(run)!r}: it must be a run of train bc")
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    log = [line for line in log if "loss" in line]
    done = max(RunFolder(run).generations(), default=0)
    if not log or done < LATE * config["bc"]["steps"] or "validation/loss" not in log[-1]:
        raise ValueError(f"RUN is {str(run)!r}: its training is not complete, or has no episodes set aside")
    kept_run(run.name, run, {})  # raises what it would raise after the run has played
    evaluations, swept = {}, {}
    for engine in ENGINES:
        environment = Environment.of(Environment(TASK, engine, preset))
        played = evaluate(str(run), environment, seeds_from(FIRST_SEED, EPISODES), workers=workers)
        evaluations[engine] = played.summary()
        swept[engine] = [round(episode.info["fraction_in_bowls"], 3) for episode in played.episodes]
        print(f"{run.name}, {preset}, {engine}: {played.mean('fraction_in_bowls'):.1%} in bowls", flush=True)
    kept = kept_run(run.name, run, evaluations)
    kept["swept"] = swept
    log = [line for line in log if line["step"] <= done]
    kept["curve"] = [{name: round(line[name], 4) for name in CURVE if name in line} for line in log]
    add(KEPT / f"{preset}.json", run.name, kept)


def ship(run: Path, name: str) -> None:
    """Copy config, log and last policy of a kept run to the package, with its evaluations on `paper`.

    Without the optimiser's state, which is four times as large as all the rest.
    """
    out = shipped_folder(name)
    kept = json.loads((KEPT / "paper.json").read_text()).get(run.name)
    if kept is None:
        raise ValueError(f"RUN is {str(run)!r}: it is not kept, --keep it first")
    step, arrays = RunFolder(run).load()
    config = json.loads((run / "config.json").read_text())
    shutil.rmtree(out, ignore_errors=True)
    RunFolder(out).create(config)
    policy = {p: a for p, a in arrays.items() if p in (MEAN, BEST) or p.startswith(FEATURES)}
    RunFolder(out).save(step, policy)
    shutil.copy(run / "metrics.jsonl", out / "metrics.jsonl")
    evaluations = {}
    for engine, result in kept["evaluations"].items():
        first, last = result["seeds"]
        evaluations[engine] = {**result, "policy": name, "seeds": list(range(first, last + 1))}
    (out / "evaluation.json").write_text(json.dumps(evaluations) + "\n")
    print(out)


def data_of(run: dict[str, Any]) -> str:
    """The demonstrations of a training in words."""
    data = run["data"]
    every = [data] if "environment" in data else list(data.values())
    words = []
    for one in every:
        made, recording = one["environment"], one["recording"]
        preset = made.get("preset", "paper")
        player = "a policy" if one.get("policy") else f"noise {recording['noise']}"
        words.append(f"{recording['episodes']} on {preset}, {made['engine']}, {player}")
    return "; ".join(words)


def tables(preset: str, kept: Kept) -> bool:
    """Print the tables of the preset that was played; whether the claims hold."""
    swept: Found = {}
    held_out: dict[Place, float] = {}
    for budget in by_budget(kept):
        one = next(iter(budget.values()))
        stages = [one["init"]["trained"], one] if "init" in one else [one]
        about = ", then ".join(f"{s['bc']['steps']} steps on demonstrations: {data_of(s)}" for s in stages)
        for engine in ENGINES:
            named = named_rows(budget, engine)
            if not named:
                continue
            title = f"played on {preset}, {engine}, {about}"
            print(table([row for _, row in named], title), end="\n\n")
            for title, row in named:
                place = title, row["runs"][0]
                results = [kept[name]["evaluations"][engine] for name in row["runs"]]
                percent = [100 * result["fraction_in_bowls_mean"] for result in results]
                swept.setdefault(place, {})[engine] = percent
                ends = [kept[name]["curve"][-1] for name in row["runs"]]
                played = [end[ROLLOUT_RETURN] for end in ends if ROLLOUT_RETURN in end]
                if len(played) >= SEEDS:
                    held_out[place] = float(np.mean(played))
                loss = np.mean([end["validation/loss"] for end in ends])
                single = ", ".join(f"{value:.1f}" for value in percent)
                print(f"{title}: {single} % of the balls; loss on episodes set aside {loss:.4g}")
                if len(row["runs"]) > 1 and all("swept" in kept[name] for name in row["runs"]):
                    every = np.array([kept[name]["swept"][engine] for name in row["runs"]])
                    mean, low, high = interval(100 * every, np.mean)
                    print(f"  their mean is {mean:.1f} % ({low:.1f} to {high:.1f})")
            print()
    held = []
    both = [place for place in held_out if len(swept[place]) == len(ENGINES)]
    best = max(both, key=lambda place: held_out[place], default=None)
    for engine, least in LEAST.get(preset, {}).items():
        claim = f"on {preset}, {least} % or more of the balls are in bowls on {engine}"
        holds = best is not None and np.mean(swept[best][engine]) >= least
        held.append(said(claim, best, swept, holds))
    for name, run in kept.items():
        last, steps = run["curve"][-1]["step"], run["bc"]["steps"]
        if last < steps:
            print(f"{name} was stopped after {last} of {steps} steps")
    skipped = [name for name, run in kept.items() if run["curve"][-1].get("skipped")]
    if kept:
        print(f"{'NO ' if skipped else 'yes':4}{len(kept)} trainings, all of them finite in every step")
    print()
    return all(held) and not skipped


def draw(kept: Kept) -> None:
    """Balls in bowls over the FLOPs of a step, by engine: a mark for each training that reads images.

    Of the budgets that have a control without attention.
    """
    colours: dict[str, str] = {}
    shown = {name: run for name, run in kept.items() if run["policy"]["attention"] != NO_IMAGE}
    with picture(FIGURE, (11, 4.4)) as figure:
        for axes, engine in zip(figure.subplots(1, 2, sharey=True), ENGINES, strict=True):
            for budget in by_budget(shown):
                if ALL in dict(named_rows(budget, engine)):
                    patch = next(iter(budget.values()))["policy"]["patch"]
                    about = MARKS.get(patch, "^"), colours, f", patch {patch}"
                    plot_trainings(axes, budget, engine, "fraction_in_bowls_mean", *about)
            axes.set(title=engine, xlabel="FLOPs of a policy step", xscale="log", ylim=(80, 101))
        figure.axes[0].set(ylabel=f"balls in bowls, %, {EPISODES} unseen seeds")
        figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside center right")
    print(FIGURE)


def main() -> int:
    """Run as the docstring of this file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", nargs="+", type=Path, default=[], metavar="RUN")
    parser.add_argument("--preset", choices=task_class(TASK).presets, default="paper")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--ship", nargs=2, metavar=("RUN", "NAME"))
    parser.add_argument("--picture", action="store_true")
    given = parser.parse_args()
    try:
        for run in given.keep:
            keep(run, given.preset, given.workers)
        if given.ship:
            ship(Path(given.ship[0]), given.ship[1])
    except (ValueError, OSError) as error:
        parser.error(str(error))
    files: dict[str, Kept] = {preset: {} for preset in LEAST}
    for path in sorted(KEPT.glob("*.json")):
        files[path.stem] = json.loads(path.read_text())
    if given.picture:
        draw(files["paper"])
    held = [tables(preset, kept) for preset, kept in files.items()]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
