"""Runs and shipped policies by name, their policies, and where they are played.

A name may end in @best (the policy that did best, see `load`) or @40 (that of checkpoint 40).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

from robopolicy.envs.physics import ENGINES, RENDERERS, is_installed
from robopolicy.envs.registry import TASKS, check_imported, check_name, task_class, with_defaults
from robopolicy.experiments.environments import Environment
from robopolicy.naming import closest, one_of
from robopolicy.policies.catalogue import PolicyConfig, policy_of, restore
from robopolicy.policies.policy import Policy
from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy

BLIND = ("blind", "random")  # players without observations
BASELINES = ("oracle", *BLIND)


def find_run(name: str, players: Sequence[str] = ()) -> tuple[Path, str]:
    """The folder of a run, and which of its policies `name` selects.

    Raises FileNotFoundError for no run, with the names of other `players` that would do, and ValueError for a
    name that ends in @.
    """
    if name and Path(name).is_dir():
        return Path(name), "last"
    given = name
    name, _, which = name.rpartition("@") if "@" in name else (name, "", "last")
    if not which:
        raise ValueError(f"run is {given!r}: after @, it must have best or the number of a checkpoint")
    if name and Path(name).is_dir():  # an empty one would be the current folder
        return Path(name), which
    shipped = {folder.name: folder for folder in _shipped()}
    if name in shipped:
        return shipped[name], which
    baselines = f", or {', '.join(players)}" if players else ""
    others = f" or a shipped policy ({', '.join(shipped)})" if shipped else ""
    hint = closest(name, [*players, *shipped])
    raise FileNotFoundError(f"run is {name!r}: it must be a run folder{others}{baselines}{hint}")


def check_no_baseline(names: Sequence[str], task: str) -> None:
    """Raise ValueError for a run that has the name of a baseline, which would play in its place."""
    for name in names:
        if name in (*BASELINES, *task_class(task).players):
            raise ValueError(f"run is {name!r}: a baseline has this name, so write ./{name}")


def _shipped() -> list[Path]:
    """The folders of the shipped policies."""
    folder = Path(str(files("robopolicy.assets"))) / "policies"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def is_shipped(folder: Path) -> bool:
    """Whether a run's folder is one of the package."""
    return folder in _shipped()


def shipped_policy(task: str, attention: str) -> str:
    """The name of the shipped policy of a task with a mechanism; raises ValueError if there is none."""
    for folder in _shipped():
        config = RunFolder(folder).config()
        if config["task"] == task and config["policy"]["attention"] == attention:
            return folder.name
    raise ValueError(f"policy is None: no shipped policy of {task} has {attention}; give --policy RUN")


def task_of(name: str, run: Any, kind: str = "run") -> str:
    """The task of a run or a bundle; raises ValueError if it names none, or one that is not imported."""
    return check_imported(run.get("task"), f"task of the {kind} {name!r}")


def played_on(
    names: Sequence[str],
    task: str | None,
    engine: str | None,
    preset: str | None = None,
    episode_seconds: float | None = None,
    renderer: str | None = None,
    others: Mapping[str, Any] | None = None,
) -> Environment:
    """The environment of runs and baselines: by default that of the first run, with its last preset.

    `others` are further settings, in place of those that this run was trained with. Clones of one renderer
    see its pictures where it draws for the engine. An engine that is not installed is no default. Baselines
    alone play the first of all tasks on its default engine. Raises ValueError or FileNotFoundError, in one
    line, for an unknown task, engine or run, and for a run of another task.
    """
    task = task or next(filter(None, map(_task_of_run, names)), None)
    baselines = {*BASELINES, *([] if task is None else task_class(task).players)}  # imports its module
    if engine is not None:
        one_of("engine", engine, ENGINES)
    runs = {name: find_run(name, sorted(baselines))[0] for name in names if name not in baselines}
    configs = {name: config_of(run) for name, run in runs.items()}
    tasks = {name: task_of(name, config) for name, config in configs.items()}
    task = check_name(task or next(iter(TASKS)))
    for name, other in tasks.items():
        if other != task:
            raise ValueError(f"task is {task!r}: {name!r} was trained on {other!r}")
    engine = next(filter(None, (engine, *map(engine_of, configs.values()))), None)
    preset = next(filter(None, (preset, *map(preset_of, configs.values()))), None)
    trained_on = next(map(others_in, configs.values()), {})
    drawn = [*{*map(_renderer_of, configs.values())}]
    if renderer is None and len(drawn) == 1 and engine is not None and RENDERERS[drawn[0]] == engine:
        renderer = drawn[0]
    chosen = {**trained_on, **(others or {}), **({"renderer": renderer} if renderer else {})}
    return Environment.of(Environment(task, engine, preset, episode_seconds, chosen))


def _task_of_run(name: str) -> str | None:
    """The task of a run; None for a name that is no run, such as a player."""
    try:
        folder, _ = find_run(name)
    except FileNotFoundError:
        return None
    return None if name in BASELINES else task_of(name, config_of(folder))


def trained_on(trained: Policy) -> Environment:
    """The environment of a policy's training, with its last preset; raises ValueError if it names no task."""
    task = task_of(trained.name, trained.run)
    preset, others = preset_of(trained.run), others_in(trained.run)
    return Environment.of(Environment(task, engine_of(trained.run), preset, None, others))


def training_title(name: str) -> str:
    """The task and variant that a run was trained on, for people; of a clone, those of its demonstrations.

    What the run does not record is the task's default.
    """
    config = RunFolder(find_run(name)[0]).config()
    task, data, own = task_of(name, config), config.get("data"), config.get("environment")
    origins = (data, *data.values()) if isinstance(data, dict) else ()
    recorded = [origin.get("environment") for origin in origins if isinstance(origin, dict)]
    made = [one for one in recorded if isinstance(one, dict)]
    usual = dict(zip(("engine", "preset"), with_defaults(task), strict=True))

    def joined(part: str, places: Sequence[Any]) -> str | None:
        found = [place.get(part) or usual[part] for place in places if isinstance(place, dict)]
        return " and ".join(dict.fromkeys(one for one in found if isinstance(one, str))) or usual[part]

    preset = joined("preset", made) if made else preset_of(config) or usual["preset"]
    return Environment(task, joined("engine", made or [own]), preset, None, others_in(config)).title


def preset_of(config: Mapping[str, Any]) -> str | None:
    """The last preset that a run was trained on, or that of a cloning's demonstrations; None without."""
    environment = config.get("environment")
    if not isinstance(environment, dict):
        return None
    presets = environment.get("presets")
    last = presets[-1] if isinstance(presets, list) and presets else environment.get("preset")
    return last if isinstance(last, str) else None


def others_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The further settings of the environment that a run was trained on, such as its cameras.

    Raises ValueError if they are not settings by name.
    """
    environment = config.get("environment")
    others = environment.get("others", {}) if isinstance(environment, dict) else {}
    if not isinstance(others, dict):
        raise ValueError(f"others is {others!r} in the run's config.json: it must be settings by name")
    return dict(others)


def _renderer_of(config: Mapping[str, Any]) -> str:
    """The renderer that was chosen for a clone's demonstrations, or the default one."""
    environment = config.get("environment")
    found = environment.get("renderer") if isinstance(environment, dict) else None
    return found if isinstance(found, str) and found in RENDERERS else "software"


def engine_of(config: Mapping[str, Any]) -> str | None:
    """The engine that a run was trained on; None for one that is not installed, and for jax.

    What was trained in batches is judged on an engine that its training did not use.
    """
    environment = config.get("environment")
    engine = environment.get("engine") if isinstance(environment, dict) else None
    return engine if engine in ENGINES and engine != "jax" and is_installed(engine) else None


def load(run: str | Path, which: str | int | None = None) -> Policy:
    """The policy of a run, or a policy that ships with the package.

    Args:
      run: a run's folder or the name of a shipped policy. It may end in @best (the policy that did best: on
        held-out seeds; of a clone, in the simulator, or without rollouts on frames set aside) or in @40 (that
        of checkpoint 40).
      which: `last`, `best` or the number of a checkpoint, instead of such an ending. Default: last.

    Raises FileNotFoundError for an unknown run, ValueError for other bad input and for a damaged run.
    """
    if not isinstance(run, str | Path):
        raise ValueError(f"run is {run!r}: it must be a run folder or the name of a shipped policy")
    which = str(which) if isinstance(which, int) and not isinstance(which, bool) else which
    if which not in (None, "last", "best") and not (isinstance(which, str) and which.isdecimal()):
        raise ValueError(f"which is {which!r}: it must be last, best or the number of a checkpoint")
    folder, ending = find_run(str(run))
    if which is not None and ending != "last":
        raise ValueError(
            f"which is {which!r}: run {str(run)!r} has an ending of its own, so give one of them"
        )
    name = str(run) if which in (None, "last") else f"{run}@{which}"
    settings = config_of(folder)
    config = policy_in(folder, settings)
    parameters, arrays = load_policy(folder, which or ending)
    try:
        _, features = policy_of(config, arrays)
        return Policy(config, parameters, features, name, settings)
    except ValueError as error:
        raise CheckpointError(
            f"the checkpoint of {name!r} and the policy in its config.json do not fit: {error}"
        ) from error


def config_of(run: Path) -> dict[str, Any]:
    """The config.json of a run; raises CheckpointError if it is damaged or describes no policy."""
    settings = RunFolder(run).config()
    if "policy" not in settings:
        raise CheckpointError(f"{str(run / 'config.json')!r} describes no policy: this is no run")
    return settings


def policy_in(run: Path, settings: Mapping[str, Any]) -> PolicyConfig:
    """The policy in a run's config.json; raises CheckpointError, which names the file, if it is damaged."""
    try:
        return restore(settings["policy"])
    except ValueError as error:
        raise CheckpointError(f"{str(run / 'config.json')!r}: {error}") from error


def identity(policy: Policy, name: str) -> dict[str, Any]:
    """What identifies a trained policy `name`: also its checkpoint, if that is still the name of its run."""
    found: dict[str, Any] = {"run": name}
    with suppress(OSError, ValueError):  # the run or the policy was renamed
        folder, which = find_run(name)
        saved = RunFolder(folder).generations()
        if config_of(folder) == policy.run and saved and (which in ("last", "best") or which.isdecimal()):
            found["checkpoint"] = saved[-1] if which == "last" else which
    return {**found, "parameters_sha256": parameters_digest(policy)}


def parameters_digest(policy: Policy) -> str:
    """The SHA-256 of a policy's parameters."""
    return hashlib.sha256(policy.parameters.tobytes()).hexdigest()
