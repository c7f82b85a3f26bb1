"""A RUN as commands take it: a run folder, or the name of a policy that ships with the package.

RUN@best is the policy that did best on held-out seeds, RUN@40 that after generation 40.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from robopolicy.envs.physics import ENGINES
from robopolicy.envs.registry import TASKS, check_imported, check_name, task_class
from robopolicy.experiments.environments import Environment
from robopolicy.naming import one_of
from robopolicy.policies.base import parameter_count
from robopolicy.policies.catalogue import policy_of, restore
from robopolicy.policies.policy import Policy
from robopolicy.training.checkpoint import CheckpointError, RunFolder, load_policy

BLIND = ("blind", "random")  # players that look at nothing
BASELINES = ("oracle", *BLIND)


def find_run(name: str) -> tuple[Path, str]:
    """The folder of a run, and which of its policies is meant. Raises FileNotFoundError for no run."""
    if Path(name).is_dir():
        return Path(name), "last"
    name, _, which = name.partition("@")
    if Path(name).is_dir():
        return Path(name), which or "last"
    shipped = Path(str(files("robopolicy.assets"))) / "policies"
    if (shipped / name).is_dir():
        return shipped / name, which or "last"
    have = sorted(entry.name for entry in shipped.iterdir()) if shipped.is_dir() else []
    others = f" or a shipped policy ({', '.join(have)})" if have else ""
    raise FileNotFoundError(f"run is {name!r}: it must be a run folder{others}")


def shipped_policy(task: str, attention: str) -> str:
    """The policy of a task that ships with the package; raises ValueError where none does."""
    for folder in sorted((Path(str(files("robopolicy.assets"))) / "policies").iterdir()):
        config = RunFolder(folder).config()
        if config["task"] == task and config["policy"]["attention"] == attention:
            return folder.name
    raise ValueError(f"policy is not given: none of {task} with {attention} comes with the package")


def task_of(name: str, run: Any, kind: str = "run") -> str:
    """The task of a run or a bundle; raises ValueError if it names none, or one that is not imported."""
    return check_imported(run.get("task"), f"task of the {kind} {name!r}")


def played_on(
    names: Sequence[str],
    task: str | None,
    engine: str | None,
    preset: str | None = None,
    episode_seconds: float | None = None,
) -> Environment:
    """Where runs and baselines play: on the task and the engine given, or else on those of the first run.

    Baselines alone play the first task of all on its default engine. Raises ValueError or FileNotFoundError,
    in one line, for a task or an engine that does not exist, for no run, and for a run of another task.
    """
    baselines = {*BASELINES, *([] if task is None else task_class(task).players)}  # imports its module
    if engine is not None:
        one_of("engine", engine, ENGINES)
    configs = {name: RunFolder(find_run(name)[0]).config() for name in names if name not in baselines}
    tasks = {name: task_of(name, config) for name, config in configs.items()}
    task = check_name(task or next(iter(tasks.values()), next(iter(TASKS))))
    for name, its in tasks.items():
        if its != task:
            raise ValueError(f"task is {task!r}: {name!r} was trained on {its!r}")
    engines = [engine, *map(engine_of, configs.values())]
    chosen = next(filter(None, engines), None)
    return Environment.of(Environment(task, chosen, preset, episode_seconds))


def trained_on(trained: Policy) -> Environment:
    """The task and the engine that a policy was trained on; raises ValueError where its run names no task."""
    task = task_of("policy", trained.run)
    return Environment.of(Environment(task, engine_of(trained.run)))


def engine_of(config: Mapping[str, Any]) -> str | None:
    """The engine that a run was trained on; None where its config has none of ours."""
    environment = config.get("environment")
    engine = environment.get("engine") if isinstance(environment, dict) else None
    return engine if engine in ENGINES else None


def load(run: str | Path, which: str | None = None) -> Policy:
    """The policy of a run or of a name that ships with the package.

    Args:
      run: a run's folder, the name of a shipped policy, or either of them with @best (the policy that did
        best on held-out seeds) or @40 (that of checkpoint 40).
      which: `last`, `best` or the number of a checkpoint, in place of such an ending.

    Raises FileNotFoundError or ValueError, in one line, for no run and for a damaged one.
    """
    folder, ending = find_run(str(run))
    settings = RunFolder(folder).config()
    if "policy" not in settings:
        raise CheckpointError(f"{str(folder / 'config.json')!r} describes no policy: this is no run")
    config = restore(settings["policy"])
    parameters, arrays = load_policy(folder, which or ending)
    functions, features = policy_of(config, arrays)
    if parameters.shape != (parameter_count(functions),):
        raise CheckpointError(
            f"the checkpoint has {list(parameters.shape)} parameters: the policy in config.json has "
            f"[{parameter_count(functions)}]"
        )
    return Policy(config, parameters, features, str(run), settings)
