"""Grids of trainings: every mechanism with every seed, each a run, and all of them evaluated alike."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import check_imported, task_class
from robopolicy.experiments.claims import off_budget
from robopolicy.experiments.comparison import Row, policies, rows_of
from robopolicy.experiments.default_policies import LAST_SEED, canonical_label, new_policy
from robopolicy.experiments.environments import Environment, opened
from robopolicy.experiments.evaluation import FIRST_SEED, seeds_from
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.output_files import new_folder
from robopolicy.experiments.run_table import runs_below
from robopolicy.experiments.runs import engine_of, load
from robopolicy.experiments.starting import check_same, checked_evaluator
from robopolicy.experiments.stored_evaluations import evaluate_and_keep, evaluation_of_last
from robopolicy.experiments.train_es import PARTS, Search, Variants, checked_search, train_es
from robopolicy.naming import check_distinct, check_graph_names, counted, one_line, one_of
from robopolicy.policies.controls import CONTROLS, from_label
from robopolicy.policies.policy import Policy
from robopolicy.reading_json import read_object
from robopolicy.runtime.policy import ONNX
from robopolicy.settings import check_count, check_counts, check_fields, from_json
from robopolicy.training.capacity import cores
from robopolicy.training.checkpoint import RunFolder
from robopolicy.training.es import ESConfig
from robopolicy.training.run_status import FINISHED, status
from robopolicy.writing import DiskFullError, clear_about_full_disks, write_new

FILE = "grid.json"
TEST = "test"
ALIKE = (*PARTS, "evaluator", TEST)  # parts of grid.json
VARIANT = "variant"  # setting of policies with attention, which controls do not have
ATTENDS = "softmax"  # what all trainings of a grid share is that of a policy with attention
FAILURES = (ValueError, OSError, RuntimeError, ArithmeticError, MemoryError)  # of a run, not of the program


@dataclass(frozen=True)
class GridConfig:
    """The trainings of a grid, and their evaluation.

    Attributes:
      attention: specs of mechanisms, and controls: all (images without attention), "all, relu" and "all, cnn"
        (with these encoders), none (no images).
      seeds: seeds of the trainings of each mechanism.
      test_episodes: unseen episodes that each trained policy plays on the last preset.
      test_engines: engines on which it plays them. Default: the engine of the training, or one that it has
        not met if that is jax.

    Raises ValueError, in one line, for a value of another type, out of range, or that occurs twice.
    """

    attention: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    test_episodes: int = 100
    test_engines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        check_counts("seeds", self.seeds, 0, LAST_SEED)
        for engine in self.test_engines:
            one_of("test_engines", engine, ENGINES)
        check_count("test_episodes", self.test_episodes, 1, LAST_SEED - FIRST_SEED)
        specs = tuple(map(canonical_label, self.attention))
        for name, values in (
            ("attention", specs),
            ("seeds", self.seeds),
            ("test_engines", self.test_engines),
        ):
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"{name} has {value} twice: each may occur once")

    def check_not_empty(self) -> None:
        """Raise ValueError for a grid without trainings."""
        for name in ("attention", "seeds"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty: a grid needs one or more")


class Cell(NamedTuple):
    """A training of a grid.

    Attributes:
      folder: the folder of its run.
      attention: the mechanism.
      seed: the seed of the training.
      search: its checked settings.
    """

    folder: Path
    attention: str
    seed: int
    search: Search


class Trained(NamedTuple):
    """What a call of `train_grid` did.

    Attributes:
      complete: names of the runs that are trained and evaluated.
      failed: the error of each run that failed, in one line, by its name.
      stopped: name of the run in which Ctrl-C or SIGTERM stopped the grid, or "".
    """

    complete: list[str]
    failed: dict[str, str]
    stopped: str


Showing = Callable[[Cell], AbstractContextManager[Hooks]]


def train_grid(
    folder: str | Path,
    env: str | Environment,
    grid: GridConfig,
    config: ESConfig | None = None,
    *,
    presets: Sequence[str] = (),
    evaluator: EvaluatorConfig | None = None,
    wandb: str | None = None,
    say: Callable[[str], None] = lambda line: None,
    showing: Showing = lambda cell: nullcontext(Hooks()),
    **settings: Any,
) -> Trained:
    """Train every mechanism with every seed by `train_es`, one run after another, and evaluate each.

    A run that is complete is left as it is, and one that is not continues to the same bits. Further calls
    may add mechanisms and seeds; all other settings must be those of the first call, which grid.json holds.
    A run that fails does not end the grid.

    Args:
      folder: folder of the grid; its runs have a folder each in it.
      env: the task.
      grid: the mechanisms and seeds, and the evaluation.
      config: settings of the search; its seed is replaced.
      presets: as of `train_es`.
      evaluator: as of `train_es`.
      wandb: as of `train_es`.
      say: called with lines about the progress.
      showing: for each training, a context that yields the functions to call during it.
      settings: settings of the policy, as of `new_policy`.

    Raises ValueError, in one line, for bad input and for a grid that was changed, and FileExistsError for a
    folder with something else, before it trains anything. Raises DiskFullError if the disk is full.
    """
    folder = new_folder("folder", folder)
    grid.check_not_empty()
    before = _read(folder) if (folder / FILE).is_file() else None
    evaluator = checked_evaluator(evaluator, None, wandb, _words(folder), before)
    config = config or ESConfig()
    if config.seed != ESConfig.seed:
        raise ValueError(f"seed is {config.seed}: a grid takes seeds")
    cells = _cells(folder, env, grid, config, presets, evaluator, settings)
    shared = _policy(env, ATTENDS, grid.seeds[0], settings)
    check_graph_names(shared.functions.observation if before is None else ())
    stored = _stored(checked_search(shared, env, config, presets, evaluator), grid)
    tests = _tests(stored)
    for test in tests:
        with opened(test, None):
            pass
    _keep(folder, stored)
    seeds = seeds_from(FIRST_SEED, grid.test_episodes)
    workers = min(evaluator.workers, cores())
    result = Trained([], {}, "")
    for number, cell in enumerate(cells, 1):
        name = cell.folder.name
        say(f"{name}, {number} of {len(cells)}")
        try:
            if _stopped_in(cell, env, evaluator, wandb, showing, settings):
                return result._replace(stopped=name)
            for test in tests:
                about = f"playing {counted(len(seeds), 'unseen episodes')} of {test.title}"
                evaluate_and_keep(cell.folder, test, seeds, workers=workers, on_begin=partial(say, about))
        except DiskFullError:
            raise
        except FAILURES as error:
            result.failed[name] = one_line(str(error) or type(error).__name__)
            say(f"{name} failed: {result.failed[name]}")
        else:
            result.complete.append(name)
            say(f"{name} is complete")
    return result


class Results(NamedTuple):
    """What a grid has found so far.

    Attributes:
      rows: those of `comparison.compare`, by the title of the environment of the test.
      incomplete: names of the runs that are not trained or not evaluated yet.
      damaged: the error of each of them whose evaluation or policy is damaged, in one line, by its name.
      notes: of each run in `rows` whose training differs from its budget, in one line.
    """

    rows: dict[str, list[Row]]
    incomplete: list[str]
    damaged: dict[str, str]
    notes: list[str]


def grid_results(folder: str | Path) -> Results:
    """The results of a grid's complete runs, from the evaluations that they keep; `draw_grid` draws them.

    The runs are those in the folder itself, not in folders below it, such as copies. Raises FileNotFoundError
    or ValueError, in one line, for a folder without a grid, and for a damaged file that is no evaluation.
    """
    folder = Path(folder)
    if not (folder / FILE).is_file():
        raise FileNotFoundError(f"folder is {str(folder)!r}: it holds no {FILE}, so no grid")
    stored = _read(folder)
    tests, seeds = _tests(stored), seeds_from(FIRST_SEED, stored[TEST]["test_episodes"])
    paths = sorted(path for _, path in runs_below(folder) if path.parent == folder)
    kept, damaged = {}, {}
    for path in paths:
        try:
            found = [evaluation_of_last(path, test, seeds) for test in tests]
            if all(found):
                load(path)  # raises for a damaged policy
            kept[path] = found
        except ValueError as error:
            damaged[path.name] = one_line(str(error))
    names = [str(path) for path, results in kept.items() if all(results)]
    together = policies(names)
    rows = {}
    for number, test in enumerate(tests):
        results = {str(path): found[number] for path, found in kept.items()}
        rows[test.title] = rows_of(together, {name: results[name] or {} for name in names}, {})
    incomplete = [path.name for path in paths if str(path) not in names]
    return Results(rows, incomplete, damaged, [*filter(None, map(off_budget, names))])


def _cells(
    folder: Path,
    env: str | Environment,
    grid: GridConfig,
    config: ESConfig,
    presets: Sequence[str],
    evaluator: EvaluatorConfig,
    settings: Mapping[str, Any],
) -> list[Cell]:
    """The trainings, seed by seed, so that a grid that is stopped has every mechanism."""
    searches = {}
    for attention in grid.attention:
        policy = _policy(env, attention, grid.seeds[0], settings)
        searches[canonical_label(attention)] = checked_search(policy, env, config, presets, evaluator)
    cells = []
    for seed in grid.seeds:
        for attention, search in searches.items():
            seeded = search.settings | {"es": search.settings["es"] | {"seed": seed}}
            search = search._replace(config=replace(search.config, seed=seed), settings=seeded)
            cells.append(Cell(_folder(folder, attention, search.settings), attention, seed, search))
    check_distinct("folders of runs", [cell.folder.name for cell in cells])
    return cells


def _folder(grid: Path, attention: str, settings: Mapping[str, Any]) -> Path:
    """The folder of a cell's run: if it exists, that of an older version, whose name has no signs."""
    signed = re.sub(r"(?<!e)-(?=\.?\d)", "-minus-", attention)  # an exponent keeps its name
    names = (re.sub(r"[^\w.]+", "-", text).strip("-") for text in (signed, attention))
    folder, older = (grid / f"{name}-seed-{settings['es']['seed']}" for name in names)
    if folder != older and RunFolder(older).config_path.is_file():
        with suppress(ValueError):  # a damaged run is that of another cell, which names its error
            policy = RunFolder(older).config().get("policy")
            if isinstance(policy, dict) and policy.get("attention") == settings["policy"]["attention"]:
                return older
    return folder


def _policy(env: str | Environment, attention: str, seed: int, settings: Mapping[str, Any]) -> Policy:
    spec, encoder = from_label(attention)
    own = {name: value for name, value in settings.items() if spec not in CONTROLS or name != VARIANT}
    return new_policy(env, spec, seed=seed, **{**own, **encoder})


def _stored(search: Search, grid: GridConfig) -> dict[str, Any]:
    """What all trainings of a grid share, as grid.json holds it; `search` is one of them."""
    shared = {part: search.settings[part] for part in (*PARTS, "evaluator")}
    for part, own in (("policy", ("attention", "encoder")), ("es", ("seed",))):
        shared[part] = {name: value for name, value in shared[part].items() if name not in own}
    engines = list(grid.test_engines)
    if not engines:
        tested_on = Environment.of(replace(search.variants[-1], engine=engine_of(search.settings)))
        engines = [tested_on.engine] if tested_on.engine else []
    return shared | {TEST: {"test_episodes": grid.test_episodes, "test_engines": engines}}


def _tests(stored: Mapping[str, Any]) -> list[Environment]:
    """The environments of the test: the last preset of the training, on each engine."""
    trained_on = Variants(**stored["environment"])
    preset = trained_on.presets[-1] if trained_on.presets else None
    settings = (preset, trained_on.episode_seconds, trained_on.others)
    engines = stored[TEST]["test_engines"] or [None]
    return [Environment.of(Environment(stored["task"], engine, *settings)) for engine in engines]


def _keep(folder: Path, stored: Mapping[str, Any]) -> None:
    """Write grid.json, or compare it; raises ValueError that names the first setting that differs."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"folder is {str(folder)!r}: it must be a folder, and is a file")
    left = f".{FILE}."  # from a process that was killed before
    # Asked before grid.json, which another process may write in between.
    used = folder.exists() and any(not path.name.startswith(left) for path in folder.iterdir())
    if (folder / FILE).is_file():
        _check_kept(folder, stored)
        return
    if used:
        raise FileExistsError(f"{str(folder)!r} exists and holds no grid: name a new folder")
    with clear_about_full_disks(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        write_new(folder / FILE, json.dumps(stored, indent=2) + "\n")
    except FileExistsError:  # another process has begun the grid in the meantime
        _check_kept(folder, stored)


def _check_kept(folder: Path, stored: Mapping[str, Any]) -> None:
    """Raise ValueError that names the first setting in which grid.json differs from `stored`."""
    before = _read(folder)
    if "policy_runtime" in stored["evaluator"]:
        before["evaluator"].setdefault("policy_runtime", ONNX)  # which older grids do not name
    check_same(_words(folder), ALIKE, before, stored)


def _words(folder: Path) -> str:
    return f"the grid in {str(folder)!r}"


def _read(folder: Path) -> dict[str, Any]:
    """The content of grid.json. Raises ValueError, in one line, if it is damaged."""
    path = folder / FILE
    stored, where = read_object(path), f"{str(path)!r}:"
    for part in ALIKE:
        if not isinstance(stored.get(part), str if part == "task" else dict):
            raise ValueError(f"{str(path)!r} is not of a grid: it has no settings of {part}")
    check_imported(stored["task"], f"task of the grid {str(folder)!r}")
    optional = {"environment": (Variants, {"others": {}}), TEST: (GridConfig, {"attention": (), "seeds": ()})}
    for part, (kind, absent) in optional.items():
        try:
            from_json(part, kind, absent | stored[part])
        except ValueError as error:
            raise ValueError(f"{where} {error}") from error
    known = task_class(stored["task"]).presets
    for preset in stored["environment"]["presets"] if known else ():
        one_of(f"{where} presets", preset, known)
    return stored


def _stopped_in(
    cell: Cell,
    env: str | Environment,
    evaluator: EvaluatorConfig,
    wandb: str | None,
    showing: Showing,
    settings: Mapping[str, Any],
) -> bool:
    """Train a cell, unless it is complete. Returns whether there was a request to stop meanwhile."""
    run = RunFolder(cell.folder)
    begun = run.config_path.is_file()
    if begun:
        check_same(f"the run {cell.folder.name!r}", PARTS, run.config(), cell.search.settings)
        state = status(run)
        if state.status == FINISHED and state.done >= state.end:
            return False
    with showing(cell) as hooks:
        record = train_es(
            _policy(env, cell.attention, cell.seed, settings),
            env,
            cell.search.config,
            out=cell.folder,
            presets=[variant.preset for variant in cell.search.variants if variant.preset],
            evaluator=evaluator,
            resume=begun,
            wandb=wandb,
            hooks=hooks,
        ).record
    return record is not None and record["stopped"]
