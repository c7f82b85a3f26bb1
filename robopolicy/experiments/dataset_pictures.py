"""Pictures of an episode of a dataset: a video, or frames on one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.registry import RECORDED, check_imported, task_class
from robopolicy.training.datasets import Dataset
from robopolicy.training.episodes import Episode, open_episode
from robopolicy.viz.contact_sheet import contact_sheet
from robopolicy.viz.overlay import Picture, captioned
from robopolicy.viz.video import open_video

WIDE = 480  # least width of a picture, for its captions, pixels
COLUMNS = 4
RATE = 10  # frames a second, of a recording that does not say its own, and whose task is not imported


def write_video(path: Path, dataset: Dataset, number: int) -> None:
    """Film the episode's images, with reward, return and action below each frame."""
    name = dataset.task
    rate = dataset.about.get("rate")
    if not (isinstance(rate, int | float) and rate > 0):
        rate = task_class(name).rate if _is_imported(name) else RATE
    with open_episode(dataset, number) as episode, open_video(path, rate) as video:
        total, scored = 0.0, has_rewards(dataset, episode.rewards)
        for step, (action, reward) in enumerate(zip(episode.actions, episode.rewards, strict=True)):
            total += reward
            place = f"episode {number}  step {step + 1}/{len(episode.rewards)}"
            earned = f"  reward {reward:.2f}  return {total:.2f}" if scored else ""
            lines = [f"{place}{earned}", *_lines(name, action)]
            video.add(captioned(_shown(episode, step), lines))


def write_sheet(path: Path, dataset: Dataset, number: int, frames: int) -> None:
    """Draw at most `frames` frames on a page, evenly spread from the first one to the last."""
    name = dataset.task
    with open_episode(dataset, number) as episode:
        steps = len(episode.rewards)
        chosen = np.unique(np.linspace(0, steps - 1, min(frames, steps)).round().astype(int))
        pictures = [_shown(episode, step) for step in chosen]
        scored = has_rewards(dataset, episode.rewards)
        earned = [f"reward {episode.rewards[step]:.2f}  " if scored else "" for step in chosen]
        captions = [
            f"{step + 1}/{steps}  {words}{_short(name, episode.actions[step])}"
            for step, words in zip(chosen, earned, strict=True)
        ]
    contact_sheet(path, pictures, captions, COLUMNS)


def has_rewards(dataset: Dataset, rewards: NDArray[np.float64]) -> bool:
    """Whether `rewards` were recorded: a LeRobot dataset of another program may have none, read as zeros."""
    return dataset.task != RECORDED or bool(np.any(rewards))


def _is_imported(task: str) -> bool:
    """Whether the contract of a task can be read; a dataset must not import modules."""
    try:
        check_imported(task, "task")
    except ValueError:
        return False
    return True


def _shown(episode: Episode, step: int) -> Picture:
    """The image before a step, at least `WIDE` wide, with even sides."""
    image = episode.image(step)
    times = max(1, -(-WIDE // image.shape[1]))
    image = np.repeat(np.repeat(image, times, axis=0), times, axis=1)
    odd = [(0, side % 2) for side in image.shape[:2]]
    return np.pad(image, [*odd, (0, 0)], mode="edge")


def _parts(task: str, action: Any) -> dict[str, dict[str, Any]]:
    """An action's numbers by the first word of their names, and by the words between the first and the last.

    Actions have no names if the task's module is not imported, or if each environment has its own.
    """
    actions = getattr(task_class(task), "actions", ()) if _is_imported(task) else ()
    names = [quantity.name for quantity in actions] if isinstance(actions, Sequence) else []
    if len(names) != len(action):
        return {"action": {"": np.asarray(action)}}
    parts: dict[str, dict[str, list[float]]] = {}
    for name, value in zip(names, action, strict=True):
        first, _, kind = name.rpartition("_")[0].partition("_")
        parts.setdefault(first, {}).setdefault(kind, []).append(float(value))
    return {first: {kind: np.array(v) for kind, v in kinds.items()} for first, kinds in parts.items()}


def _lines(task: str, action: Any) -> list[str]:
    """A line for each part of the robot."""
    return [
        f"{first:<6} " + "  ".join(f"{kind} {' '.join(f'{x:+.2f}' for x in v)}" for kind, v in kinds.items())
        for first, kinds in _parts(task, action).items()
    ]


def _short(task: str, action: Any) -> str:
    """The Euclidean length of each part of an action, whose numbers are in [-1, 1]."""
    return "  ".join(
        " ".join([first, *(f"{kind} {np.linalg.norm(v):.2f}" for kind, v in kinds.items())])
        for first, kinds in _parts(task, action).items()
    )
