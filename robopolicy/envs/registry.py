"""Tasks by name: those of the package by short names, all others by the ids of gymnasium."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, isclass, signature
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import load_env_creator

from robopolicy.envs.physics import default_engine
from robopolicy.envs.task import Task, check_class, task_of
from robopolicy.naming import extra_with, one_line, one_of

TASKS = {
    "stepping-stones": "robopolicy:robopolicy/SteppingStones-v0",
    "bimanual-sweep": "robopolicy:robopolicy/BimanualSweep-v0",
}
RECORDED = "recorded"  # the robot of a LeRobot dataset, without a simulator
RECORDED_ID = "robopolicy.experiments.recorded:robopolicy/Recorded-v0"
ID = "module:Name-v0"  # the module that registers an environment, and the id there


def gymnasium_id(name: str) -> str:
    """The id with which gymnasium makes the task `name`."""
    return RECORDED_ID if name == RECORDED else TASKS.get(name, name)


def check_spelling(name: Any, argument: str = "task") -> str:
    """Return `name` if it is one of `TASKS`, "module:Name-v0" or a registered id, without any import.

    Otherwise raise ValueError, in one line, which begins with `argument`.
    """
    if isinstance(name, str) and (name == RECORDED or name in gymnasium.registry or _has_module(name)):
        return name
    return one_of(argument, name, (*TASKS, ID))


def _has_module(name: str) -> bool:
    """Whether `name` is like "module:Name-v0"."""
    module, colon, own = name.rpartition(":")
    return bool(colon and own) and all(part.isidentifier() for part in module.split("."))


def check_imported(name: Any, argument: str) -> str:
    """`name` as a file has it; raises ValueError if its module is not imported yet.

    A file must not decide which modules are imported.
    """
    module = gymnasium_id(check_spelling(name, argument)).rpartition(":")[0]
    if module and module not in sys.modules and name != RECORDED:
        raise ValueError(f"{argument} is {name!r}: import {module} first, or give --env {name}")
    return str(name)


def check_name(name: Any, argument: str = "task") -> str:
    """Return `name` if it is the name of a task, after the import of the module of "module:Name-v0".

    Otherwise raise ValueError, in one line, which begins with `argument`.
    """
    module, _, own = gymnasium_id(check_spelling(name, argument)).rpartition(":")
    try:
        if module:
            import_module(module)
    except ModuleNotFoundError as error:
        hint = extra_with(error) or "install it, or start robopolicy in its folder"
        raise ValueError(f"{argument} is {name!r}: {error}; {hint}") from error
    except Exception as error:  # the module may raise anything
        what = one_line(f"{type(error).__name__}: {error}")
        raise ValueError(f"{argument} is {name!r}: the import of {module} fails with {what}") from error
    if own not in gymnasium.registry:
        raise ValueError(f"{argument} is {name!r}: the module {module!r} registers no environment {own!r}")
    return str(name)


def task_class(name: str) -> type[Task]:
    """The class of the task `name`, with most of its contract; no engine is imported.

    Raises ValueError, in one line, for another name, and for a class with missing or wrong members.
    """
    own = gymnasium_id(check_name(name)).rpartition(":")[2]
    entry_point = gymnasium.registry[own].entry_point
    task: Any = load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
    if not isclass(task):
        raise ValueError(f"environment {name!r} has the entry point {entry_point!r}: it must be a class")
    check_class(task, name)
    return cast(type[Task], task)


def has_setting(name: str, setting: str) -> bool:
    """Whether the task `name` has the keyword argument `setting`."""
    parameters = signature(task_class(name)).parameters
    return setting in parameters or any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())


def check_settings(name: str, settings: Mapping[str, Any]) -> None:
    """Raise ValueError for the first of `settings` that is no keyword argument of the task `name`."""
    for setting, value in settings.items():
        if not has_setting(name, setting):
            raise ValueError(f"{setting} is {value!r}: {name} takes no {setting}")


def with_defaults(
    name: str, engine: str | None = None, preset: str | None = None, renderer: str | None = None
) -> tuple[str | None, str | None]:
    """The engine and the preset of the task `name`: `engine` and `preset`, or the defaults if they are None.

    The default preset is the task's first one, the default engine one that `renderer` draws for. A task
    without engines or presets has None for them, as has one whose `engine` has a default of its own.
    """
    if engine is None and has_setting(name, "engine"):
        own = signature(task_class(name)).parameters.get("engine")
        is_chosen = own is not None and own.default not in (None, Parameter.empty)
        engine = None if is_chosen and renderer in (None, "software") else default_engine(renderer)
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

    The named settings have the task's defaults if they are None; those in `more` are passed on as they are.
    Raises ValueError, in one line, for an unknown task, for an unknown setting, for a bad value, and for an
    environment that does not meet the contract.
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
    try:
        task_of(env, name)
    except ValueError:
        env.close()
        raise
    return env
