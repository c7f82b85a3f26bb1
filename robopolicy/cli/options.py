"""Options that several commands share, and the settings of a command by name."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

_TASK = "Task: stepping-stones, bimanual-sweep, or module:Name-v0 of your own."
Task = Annotated[
    str | None,
    arg(aliases=("--env",), help=f"{_TASK} Default: that of the first run, or stepping-stones."),
]
PlannedTask = Annotated[str | None, arg(aliases=("--env",), help=f"{_TASK} Default: that of the policy.")]
TrainedTask = Annotated[
    str, arg(aliases=("--env",), help="Task: stepping-stones, or module:Name-v0 of your own.")
]
ShownTask = Annotated[
    str,
    arg(
        aliases=("--env",),
        help="Task with a demonstrator: bimanual-sweep, or module:Name-v0 of your own.",
    ),
]
Env = Annotated[str | None, arg(help="Environment of your own to import first: module:Name-v0.")]
Engine = Annotated[
    str | None,
    arg(
        help="Physics engine: bullet, mujoco or jax. Default: that of the first run unless it is jax, else "
        "bullet if installed, else mujoco."
    ),
]
NewEngine = Annotated[
    str | None, arg(help="Engine: bullet or mujoco. Default: the run's, else bullet if installed, or mujoco.")
]
PlannedEngine = Annotated[
    str | None,
    arg(
        help="Physics engine: bullet, mujoco or jax (stepping stones alone). Default: bullet if installed, "
        "else mujoco."
    ),
]
Renderer = Annotated[
    str | None,
    arg(
        help="Renderer: software, tiny (bullet's) or opengl (mujoco's). Default: that of the run or data, or "
        "software."
    ),
]
Preset = Annotated[
    str | None,
    arg(help="Variant of the task. Default: the last one of the first run's training, or the task's first."),
]
Robot = Annotated[
    str | None,
    arg(
        help="Robot of the stepping stones: laikago, go2, or the JSON file of a table of your own. Default: "
        "that of the first run, or laikago."
    ),
]
EpisodeSeconds = Annotated[
    float | None, arg(help="Longest episode, in simulated seconds. Default: that of the preset.")
]
Cameras = Annotated[
    tuple[str, ...],
    arg(
        help="Cameras of the stepping stones: front, belly, or front belly. Default: those of the run, or "
        "of the preset."
    ),
]
DatasetCameras = Annotated[
    tuple[str, ...],
    arg(help="Cameras of a LeRobot dataset, by name. Default: the only one; of robopolicy's own, all."),
]
Drift = Annotated[
    float | None,
    arg(
        help="Drift of the odometry with one camera, in metres a step, such as 0, 0.002 or 0.01. Default: "
        "that of the run, or of the preset."
    ),
]
Seed = Annotated[int, arg(help="Seed of the first episode.")]
Json = Annotated[bool, arg(help="Print the result as JSON on stdout.")]
Wandb = Annotated[str | None, arg(help="Project of Weights & Biases to log to as well.")]
Resume = Annotated[bool, arg(help="Continue the run in --out, by default with the settings it began with.")]
ResumeFrom = Annotated[
    int | None,
    arg(
        help="Continue after this checkpoint, or from the beginning with 0. What the run has beyond it moves "
        "to its folder set-aside-N."
    ),
]

# Fields that a command to resume does not repeat.
_NOT_REPEATED = ("out", "resume", "resume_from", "preset", "advance_at", "episodes", "json")


def settings_of(command: Any) -> Iterator[tuple[Field[Any], Any]]:
    """The fields of a command with their values; nested dataclasses are replaced by their fields."""
    for field in fields(command):
        value = getattr(command, field.name)
        if is_dataclass(value):
            yield from settings_of(value)
        else:
            yield field, value


def command_to_evaluate(folder: Path, task: str) -> str:
    """The command line that evaluates the run in `folder`. It imports the module of a user's task."""
    own = ["--env", task] if ":" in task else []
    return shlex.join(["robopolicy", "evaluate", str(folder), *own])


def command_to_resume(command: Any, name: str) -> str:
    """The command line that continues the run of `command`, with the settings that differ from the run's."""
    words = ["robopolicy", "train", name, "--resume", "--out", str(command.out)]
    begun = {field.name: value for field, value in settings_of(command.stored_command())}
    for field, value in settings_of(command):
        is_own = field.name == "task" and ":" in str(value)  # whose module has to be imported
        is_open = value is None and not command.resume  # a new run has chosen
        if field.name in _NOT_REPEATED or is_open or (value == begun[field.name] and not is_own):
            continue
        words.append(f"--{field.name.replace('_', '-')}")
        if value is not True:
            words += map(str, value) if isinstance(value, tuple) else [str(value)]
    return shlex.join(words)
