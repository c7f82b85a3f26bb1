"""Environments as settings: a task, and the keyword arguments of its environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import gymnasium

from robopolicy.control.robots import table_of
from robopolicy.envs.physics import RENDERERS
from robopolicy.envs.registry import (
    RECORDED,
    TASKS,
    check_name,
    gymnasium_id,
    make,
    task_class,
    with_defaults,
)
from robopolicy.envs.task import task_of
from robopolicy.training.worker import EnvironmentSpec

Shapes = Mapping[str, tuple[int, ...]]
STONES = "stepping-stones"
PICTURES = ("render_mode", "render_size")  # settings of pictures, which are not copied


@dataclass(frozen=True)
class Environment:
    """A task and the keyword arguments of its environments.

    Attributes:
      task: `stepping-stones`, `bimanual-sweep`, "module:Name-v0", or an id in gymnasium's registry.
      engine: physics engine, bullet, mujoco or jax; None for the task's default, or a task without engines.
      preset: variant of the task; None for its first one.
      episode_seconds: longest episode, simulated s; None for that of the preset.
      others: further keyword arguments by name.
      wrappers: names of the wrappers around the environment that these settings come from.
    """

    task: str
    engine: str | None = None
    preset: str | None = None
    episode_seconds: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    wrappers: tuple[str, ...] = ()

    @classmethod
    def of(cls, env: str | gymnasium.Env[Any, Any] | Environment, engine: str | None = None) -> Environment:
        """The settings of a task by its name, or of an environment from `gymnasium.make`.

        An engine that is None becomes `engine`, or the task's default; a preset that is None becomes the
        task's default. An environment keeps its engine. The file of a robot's table becomes the table. Raises
        ValueError, in one line, for an unknown task, and for an environment that breaks the contract or that
        gymnasium did not make; and as `read_table`.
        """
        if isinstance(env, Environment):
            result = env
        elif isinstance(env, str):
            result = cls(check_name(env, "env"))
        else:
            if not isinstance(env, gymnasium.Env):
                raise ValueError(f"env is {env!r}: it must be the name of a task, or an environment")
            task = task_of(env)
            if env.spec is None:
                name = type(env).__name__
                raise ValueError(f"env is a {name} without a spec: make it with gymnasium.make")
            names = {gymnasium_id(name).rpartition(":")[2]: name for name in (*TASKS, RECORDED)}
            settings = {n: value for n, value in env.spec.kwargs.items() if n not in PICTURES}
            common = {n: settings.pop(n, None) for n in ("engine", "preset", "episode_seconds")}
            # Other processes import the module of the environment's class, which registers the id.
            own = f"{type(task).__module__}:{env.spec.id}"
            wrappers = tuple(wrapper.name for wrapper in env.spec.additional_wrappers)
            result = cls(names.get(env.spec.id, own), **common, others=settings, wrappers=wrappers)
            engine = None
        if not isinstance(result.others, Mapping):
            raise ValueError(f"others is {result.others!r}: it must be settings by name")
        robot = result.others.get("robot")
        if result.task == STONES and isinstance(robot, str | Path):  # a run outlives the file of a table
            result = replace(result, others={**result.others, "robot": table_of(robot)})
        renderer = result.others.get("renderer")
        if isinstance(renderer, str) and RENDERERS.get(renderer):
            engine = None  # the renderer needs an engine of its own
        engine, preset = with_defaults(result.task, result.engine or engine, result.preset, renderer)
        return replace(result, engine=engine, preset=preset)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments that are not None."""
        common = {n: getattr(self, n) for n in ("engine", "preset", "episode_seconds")}
        return {n: value for n, value in common.items() if value is not None} | dict(self.others)

    @property
    def robot(self) -> str | None:
        """The name of the robot, if the settings have one."""
        robot = self.others.get("robot")
        table = robot.get("name") if isinstance(robot, Mapping) else getattr(robot, "name", None)
        name = robot if isinstance(robot, str) else table
        return name if isinstance(name, str) else None

    @property
    def recorded(self) -> dict[str, Any]:
        """What evaluations record of the environment, as JSON; see `variant_of`."""
        cameras, drift = self.others.get("cameras"), self.others.get("drift")
        seconds = self.episode_seconds
        given = {
            "episode_seconds": float(seconds) if isinstance(seconds, Real) else None,
            "robot": self.robot,
            "cameras": list(map(str, cameras)) if isinstance(cameras, list | tuple) else None,
            "drift": drift if isinstance(drift, int | float) else None,
        }
        always = {name: getattr(self, name) for name in ("task", "preset", "engine")}
        return always | {name: value for name, value in given.items() if value is not None}

    @property
    def title(self) -> str:
        """The task and its variant, for people."""
        variant = variant_of(self.recorded)
        return f"{self.task} ({variant})" if variant else self.task

    def showing(self, shapes: Shapes | None) -> Environment:
        """These settings, changed to observations of exactly these `shapes` by name.

        Empty shapes are for players without observations; None changes nothing.
        """
        if shapes is None:
            return self
        return replace(self, others={**self.others, **task_class(self.task).settings_for(shapes)})

    def make(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """A new environment; raises ValueError, in one line, for unknown settings and bad values."""
        self._check_no_wrappers()
        return make(self.task, **{**self.settings, **more})

    def spec(self) -> EnvironmentSpec:
        """The settings of `make` for other processes."""
        self._check_no_wrappers()
        return EnvironmentSpec(gymnasium_id(self.task), self.settings, self.preset or self.task)

    def _check_no_wrappers(self) -> None:
        if self.wrappers:
            raise ValueError(
                f"env is wrapped in {', '.join(self.wrappers)}: a new environment would have no wrappers, so "
                "give the name of the task"
            )


def others_of(
    cameras: Sequence[str] = (), drift: float | None = None, robot: str | None = None
) -> dict[str, Any]:
    """`Environment.others` with these settings of the stepping stones; no cameras and None are left out.

    `robot` is a name or the JSON file of a table. Raises as `read_table`.
    """
    table = None if robot is None else table_of(robot)
    named = {"cameras": tuple(cameras) or None, "drift": drift, "robot": table}
    return {name: value for name, value in named.items() if value is not None}


def variant_of(recorded: Mapping[str, Any]) -> str:
    """Preset, engine, robot, cameras and drift of what an evaluation records, for people."""
    drift = f"drift {recorded['drift']:g} m a step" if "drift" in recorded else None
    names = (
        recorded["preset"],
        recorded["engine"],
        recorded.get("robot"),
        *recorded.get("cameras", ()),
        drift,
    )
    return ", ".join(filter(None, names))


@contextmanager
def opened(
    env: str | gymnasium.Env[Any, Any] | Environment, shapes: Shapes | None
) -> Iterator[gymnasium.Env[Any, Any]]:
    """`env` itself if it is an environment, else a new one that is closed at the end."""
    if isinstance(env, gymnasium.Env):
        task_of(env)
        yield env
        return
    with closing(Environment.of(env).showing(shapes).make()) as instance:
        yield instance
