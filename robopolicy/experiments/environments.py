"""Which environment a player acts in: a task and the settings that its environments are made with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium

from robopolicy.envs.registry import TASKS, check_name, chosen, gymnasium_id, make, task_class
from robopolicy.envs.task import task_of
from robopolicy.training.worker import EnvironmentSpec

Shapes = Mapping[str, tuple[int, ...]]
PICTURES = ("render_mode", "render_size")  # settings that whoever makes pictures chooses anew


@dataclass(frozen=True)
class Environment:
    """A task and the keyword arguments that its environments are made with.

    Attributes:
      task: name in `TASKS`, "module:Name-v0", or an id that gymnasium knows.
      engine: physics engine; None for the task's default, and for a task without a choice.
      preset: variant of the task; None for its first one.
      episode_seconds: longest episode, in simulated seconds; None for the preset's.
      others: further keyword arguments.
    """

    task: str
    engine: str | None = None
    preset: str | None = None
    episode_seconds: float | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, env: str | gymnasium.Env[Any, Any] | Environment) -> Environment:
        """The settings of a task by its name, or of an environment that gymnasium has made.

        Engine and preset are the task's choice where they are not given. Raises ValueError, in one line, for
        no task, and for an environment that does not meet the contract or that gymnasium has not made.
        """
        if isinstance(env, Environment):
            found = env
        elif isinstance(env, str):
            found = cls(check_name(env, "env"))
        else:
            task = task_of(env)
            if env.spec is None:
                name = type(env).__name__
                raise ValueError(f"env is a {name} that no registry has made: make it with gymnasium.make")
            names = {gymnasium_id(name).rpartition(":")[2]: name for name in TASKS}
            settings = {n: value for n, value in env.spec.kwargs.items() if n not in PICTURES}
            common = {n: settings.pop(n, None) for n in ("engine", "preset", "episode_seconds")}
            # Other processes find the id once they have imported the module of the environment's class.
            own = f"{type(task).__module__}:{env.spec.id}"
            found = cls(names.get(env.spec.id, own), **common, others=settings)
        engine, preset = chosen(found.task, found.engine, found.preset)
        return replace(found, engine=engine, preset=preset)

    @property
    def settings(self) -> dict[str, Any]:
        """The keyword arguments that are given."""
        common = {n: getattr(self, n) for n in ("engine", "preset", "episode_seconds")}
        return {n: value for n, value in common.items() if value is not None} | dict(self.others)

    @property
    def title(self) -> str:
        """Task, preset and engine, for people."""
        variant = ", ".join(filter(None, (self.preset, self.engine)))
        return f"{self.task} ({variant})" if variant else self.task

    def showing(self, shapes: Shapes | None) -> Environment:
        """With the settings that show observations of these `shapes`, by name, and no others.

        No shapes at all are for players that look at nothing; None leaves all as it is.
        """
        if shapes is None:
            return self
        return replace(self, others={**self.others, **task_class(self.task).settings_for(shapes)})

    def make(self, **more: Any) -> gymnasium.Env[Any, Any]:
        """An environment; raises ValueError, in one line, for settings that the task does not take."""
        return make(self.task, **{**self.settings, **more})

    def spec(self) -> EnvironmentSpec:
        """The same as `make`, for processes that make their own."""
        return EnvironmentSpec(gymnasium_id(self.task), self.settings, self.preset or self.task)


@contextmanager
def opened(
    env: str | gymnasium.Env[Any, Any] | Environment, shapes: Shapes | None
) -> Iterator[gymnasium.Env[Any, Any]]:
    """`env` itself where it is one, and otherwise a new environment that is closed at the end."""
    if isinstance(env, gymnasium.Env):
        task_of(env)
        yield env
        return
    made = Environment.of(env).showing(shapes).make()
    try:
        yield made
    finally:
        made.close()
