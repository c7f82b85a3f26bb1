"""An episode of a dataset, to look at: a video, or frames of it on one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robopolicy.cli.tasks import TASKS
from robopolicy.training.episodes import Episode, open_episode
from robopolicy.viz.contact_sheet import contact_sheet
from robopolicy.viz.overlay import captioned
from robopolicy.viz.video import open_video

if TYPE_CHECKING:
    from robopolicy.training.datasets import Dataset
    from robopolicy.viz.overlay import Picture

WIDE = 480  # pixels, that captions have room in
COLUMNS = 4
RATE = 10  # frames a second, of a task that is not ours


def write_video(path: Path, dataset: Dataset, number: int) -> None:
    """Film what was seen, under each frame what was done then and what came of it."""
    task = TASKS.get(dataset.about["task"])
    with open_episode(dataset, number) as episode, open_video(path, task.rate if task else RATE) as video:
        total = 0.0
        for step, (action, reward) in enumerate(zip(episode.actions, episode.rewards, strict=True)):
            total += reward
            place = f"episode {number}  step {step + 1}/{len(episode.rewards)}"
            lines = [f"{place}  reward {reward:.2f}  return {total:.2f}", *_arms(action)]
            video.add(captioned(_shown(episode, step), lines))


def write_sheet(path: Path, dataset: Dataset, number: int, frames: int) -> None:
    """Put at most `frames` frames on a page, from the first one to the last, evenly spread."""
    with open_episode(dataset, number) as episode:
        steps = len(episode.rewards)
        chosen = np.unique(np.linspace(0, steps - 1, min(frames, steps)).round().astype(int))
        pictures = [_shown(episode, step) for step in chosen]
        captions = [
            f"{step + 1}/{steps}  reward {episode.rewards[step]:.2f}  {_short(episode.actions[step])}"
            for step in chosen
        ]
    contact_sheet(path, pictures, captions, COLUMNS)


def _shown(episode: Episode, step: int) -> Picture:
    """What was seen before a step, at least `WIDE` wide, with even sides."""
    image = episode.image(step)
    times = max(1, -(-WIDE // image.shape[1]))
    image = np.repeat(np.repeat(image, times, axis=0), times, axis=1)
    odd = [(0, side % 2) for side in image.shape[:2]]
    return np.pad(image, [*odd, (0, 0)], mode="edge")


def _halves(action: Any) -> list[tuple[str, Any]]:
    """Each arm's move and turn, along and about x, y and z."""
    parts = np.asarray(action).reshape(2, 2, 3)
    return [("left", parts[0]), ("right", parts[1])]


def _arms(action: Any) -> list[str]:
    """A line for each arm."""
    told = [(arm, *(" ".join(f"{x:+.2f}" for x in part) for part in parts)) for arm, parts in _halves(action)]
    return [f"{arm:<6} move {move}  turn {turn}" for arm, move, turn in told]


def _short(action: Any) -> str:
    """How far each arm is told to move and to turn, against the most that it may along one axis."""
    lengths = [(arm, *np.linalg.norm(parts, axis=1)) for arm, parts in _halves(action)]
    return "  ".join(f"{arm} move {move:.2f} turn {turn:.2f}" for arm, move, turn in lengths)
