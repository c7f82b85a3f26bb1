"""The tasks by the names that commands have for them, and everybody else's by gymnasium's ids."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, isclass, signature
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from robopolicy.envs.physics import default_engine
from robopolicy.envs.task import Task, check_class, task_of
from robopolicy.naming import one_of

TASKS = {
    "stepping-stones": "robopolicy:robopolicy/SteppingStones-v0",
    "bimanual-sweep": "robopolicy:robopolicy/BimanualSweep-v0",
}
ID = "module:Name-v0"  # of an environment of one's own: the module that registers it, and its id


def gymnasium_id(name: str) -> str:
    """The id with which gymnasium makes the task `name`."""
    return TASKS.get(name, name)


def check_spelling(name: Any, argument: str = "task") -> str:
    """`name`, where it can be that of a task; raises ValueError, which begins with `argument`, where not.

    That is one of `TASKS`, "module:Name-v0" or an id that is registered already. Nothing is imported.
    """
    if isinstance(name, str) and (":" in name or name in gymnasium.registry):
        return name
    return one_of(argument, name, (*TASKS, ID))


def check_imported(name: Any, argument: str) -> str:
    """`name` as a file has it; raises ValueError if its module is not imported yet.

    A file must not decide which modules are imported.
    """
    module = gymnasium_id(check_spelling(name, argument)).rpartition(":")[0]
    if module and module not in sys.modules:
        raise ValueError(f"{argument} is {name!r}: import {module} first, or give --env {name}")
    return str(name)


def check_name(name: Any, argument: str = "task") -> str:
    """`name`, where a task is called so; raises ValueError in one line, which begins with `argument`.

    The module of "module:Name-v0" is imported.
    """
    module, _, own = gymnasium_id(check_spelling(name, argument)).rpartition(":")
    try:
        if module:
            import_module(module)
    except ModuleNotFoundError as error:
        hint = "install it, or start python -m robopolicy in its folder"
        raise ValueError(f"{argument} is {name!r}: {error}; {hint}") from error
    if own not in gymnasium.registry:
        raise ValueError(f"{argument} is {name!r}: the module {module!r} registers no environment {own!r}")
    return str(name)


def task_class(name: str) -> type[Task]:
    """The class of the task `name`, which tells most of its contract; no engine is imported.

    Raises ValueError, in one line, for no task, and for an environment that is no `Task`.
    """
    own = gymnasium_id(check_name(name)).rpartition(":")[2]
    entry_point = gymnasium.registry[own].entry_point
    made: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if not isclass(made):
        raise ValueError(f"environment {name!r} has the entry point {entry_point!r}: it must be a class")
    check_class(made, name)
    found: Any = made
    checked: type[Task] = found
    return checked


def takes(name: str, setting: str) -> bool:
    """Whether the task `name` is made with a keyword `setting`."""
    parameters = signature(task_class(name)).parameters
    return setting in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for the first of `settings` that the task `name` is not made with."""
    for setting, value in settings.items():
        if not takes(name, setting):
            raise ValueError(f"{setting} is {value!r}: {name} takes no {setting}")


def chosen(name: str, engine: str | None = None, preset: str | None = None) -> tuple[str | None, str | None]:
    """The engine and the preset that the task `name` is played with: those given, else its own choice.

    That is the default engine, None where the task takes no engine, and the first of its presets, None where
    it has none.
    """
    if engine is None and takes(name, "engine"):
        engine = default_engine()
    presets = task_class(name).presets
    return engine, presets[0] if preset is None and presets else preset


def make(
    name: str,
    *,
    engine: str | None = None,
    preset: str | None = None,
    episode_seconds: float | None = None,
    render_mode: str | None = None,
    render_size: tuple[int, int] | None = None,
    **more: Any,
) -> gymnasium.Env[Any, Any]:
    """The environment of the task `name`, checked against the contract.

    Settings that are None are the task's own choice, but for those in `more`, which are passed on as they
    are. Raises ValueError, in one line, for no task, for a setting that it does not take, for a bad value,
    and for an environment that does not meet the contract.
    """
    common = {
        "engine": engine,
        "preset": preset,
        "episode_seconds": episode_seconds,
        "render_mode": render_mode,
        "render_size": render_size,
    }
    settings = {key: value for key, value in common.items() if value is not None} | more
    task_class(name)
    check_settings(name, settings)
    env: gymnasium.Env[Any, Any] = gymnasium.make(gymnasium_id(name), **settings)
    task_of(env, name)
    return env
