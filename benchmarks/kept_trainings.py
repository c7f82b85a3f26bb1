"""Trainings that benchmarks keep, a file for each preset: settings, curve and evaluations of each run.

`stones.py` and `bimanual_sweep.py` print their tables from these files.
"""

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from robopolicy.experiments.comparison import Row, rows_of, titles
from robopolicy.experiments.trainings import TRAINED, apart, search_settings, training
from robopolicy.policies.catalogue import restore
from robopolicy.viz.pictures import COLOURS
from robopolicy.writing import write_atomically

ENGINES = ("mujoco", "bullet")
PARTS = ("policy", "environment", "es", "bc", "precision", "data", "init")  # of a config.json
SEEDS = 3  # the fewest of a claim
# Settings of a policy by which tables differ, with the values of runs that lack them.
SIZES = {"patch": None, "history": 1, "chunk": 1}
SHIPPED = Path(__file__).parents[1] / "robopolicy" / "assets" / "policies"

Kept = dict[str, dict[str, Any]]
# A row by its title and its first run, and the percentages of its trainings by engine.
Place = tuple[str, str]
Found = dict[Place, dict[str, list[float]]]


def add(path: Path, name: str, run: dict[str, Any]) -> None:
    """Add a training to a file, one line each; an earlier one of the same name and settings is replaced.

    Raises ValueError for a name that is kept with other settings.
    """
    kept = json.loads(path.read_text()) if path.exists() else {}
    if name in kept and config(kept[name]) != config(run):
        raise ValueError(f"{name} is kept with other settings: give its folder another name")
    kept[name] = run
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(kept.items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")


def shipped_folder(name: str) -> Path:
    """The folder of a policy of the package. Raises ValueError for a name that is no single folder."""
    if Path(name).name != name or name in ("", ".."):
        raise ValueError(f"NAME is {name!r}: it must be the name of one folder")
    return SHIPPED / name


def kept_run(name: str, run: Path, evaluations: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a run: settings, evaluations by engine under this name, and its log as `curve`.

    `init` has the name of the run whose weights it began with, in place of its path. Raises ValueError if
    config.json does not say how these were trained.
    """
    stored = json.loads((run / "config.json").read_text())
    if "init" in stored:
        first = stored["init"]
        if TRAINED not in first:
            raise ValueError(f"RUN is {str(run)!r}: config.json lacks the training of its first weights")
        first["name"], first[TRAINED] = Path(first.pop("run")).name, config(first[TRAINED])
    return {
        **{part: stored[part] for part in (*PARTS, "flops", "versions") if part in stored},
        "curve": [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()],
        "evaluations": {
            engine: {
                **result,
                "policy": name,
                "seeds": [result["seeds"][0], result["seeds"][-1]],
                "returns": [round(value, 3) for value in result["returns"]],
            }
            for engine, result in evaluations.items()
        },
    }


def config(run: dict[str, Any]) -> dict[str, Any]:
    """The part of a kept training that was in its config.json."""
    return {part: run[part] for part in PARTS if part in run}


def by_budget(kept: Kept) -> list[Kept]:
    """The trainings of each budget: they differ in seed, rollouts and policy, not in `SIZES` or its variant.

    Those that began with the weights of other runs may differ in the seeds of these, too.
    Controls have no variant; they stand beside each variant of their budget.
    """
    budgets: dict[str, Kept] = {}
    for name, run in kept.items():
        budgets.setdefault(_budget(run), {})[name] = run
    return [
        {name: run for name, run in budget.items() if variants({name: run}) in ([], [variant])}
        for budget in budgets.values()
        for variant in variants(budget) or [None]
    ]


def variants(kept: Kept) -> list[str]:
    """The variants of the policies with attention that have one."""
    configs = [restore(run["policy"]) for run in kept.values()]
    found = [config.variant for config in configs if config.attends and hasattr(config, "variant")]
    return list(dict.fromkeys(found))


def _budget(run: dict[str, Any]) -> str:
    """What trainings of one budget share, as text."""
    sizes = [run["policy"].get(name, usual) for name, usual in SIZES.items()]
    return json.dumps([sizes, search_settings(_without_rollouts(run))], sort_keys=True)


def _without_rollouts(run: dict[str, Any]) -> dict[str, Any]:
    """The config of a kept training without its number of rollouts, which only play its policy.

    That of the training whose weights it began with is left out, too.
    """
    parts = config(run)
    if "bc" in parts:
        parts["bc"] = {setting: value for setting, value in parts["bc"].items() if setting != "rollouts"}
    if "init" in parts:
        parts["init"] = parts["init"] | {TRAINED: _without_rollouts(parts["init"][TRAINED])}
    return parts


def named_rows(kept: Kept, engine: str, latencies: dict[str, float] | None = None) -> list[tuple[str, Row]]:
    """Rows of `compare` with their titles, from evaluations on an engine; `latencies` (s) by run."""
    kept = {name: run for name, run in kept.items() if engine in run["evaluations"]}
    trainings = [training(name, _without_rollouts(run)) for name, run in kept.items()]
    groups: dict = {}
    for (name, run), copies in zip(kept.items(), apart(list(kept), trainings), strict=True):
        groups.setdefault((restore(run["policy"]), _budget(run), copies), []).append(name)
    results = {name: run["evaluations"][engine] for name, run in kept.items()}
    together = [(policy, names) for (policy, *_), names in groups.items()]
    found = rows_of(together, results, latencies or {})
    return list(zip(titles(found), found, strict=True))


def plot_trainings(
    axes: Axes, kept: Kept, engine: str, measured: str, mark: str, colours: dict[str, str], about: str = ""
) -> None:
    """Mark each training: the share `measured` (%) on an engine over the FLOPs of a step of its policy.

    A row of the table has one colour, which `colours` keeps by its title; `about` ends its label. Marks are
    hollow where a colour is used again.
    """
    for title, row in sorted(named_rows(kept, engine), key=lambda named: named[1]["flops"]):
        colour = colours.setdefault(title, COLOURS[len(colours) % len(COLOURS)])
        fill = "full" if list(colours).index(title) < len(COLOURS) else "none"
        percent = [100 * kept[name]["evaluations"][engine][measured] for name in row["runs"]]
        flops = [row["flops"]] * len(percent)
        axes.plot(flops, percent, mark, color=colour, fillstyle=fill, alpha=0.7, label=title + about)


def said(claim: str, place: Place | None, found: Found, holds: bool) -> bool:
    """Print whether a claim holds of a row of `found`; fewer than three seeds do not show it."""
    result, words = False, f"no policy with {SEEDS} seeds yet"
    if place is not None:
        seeds = min(map(len, found[place].values()))
        result = holds and seeds >= SEEDS
        means = (f"{sum(values) / len(values):.1f} % on {engine}" for engine, values in found[place].items())
        words = f"{place[0]}, {seeds} seed{'s' * (seeds != 1)}, {', '.join(means)}"
    print(f"{'yes' if result else 'NO ':4}{claim}: {words}")
    return result
