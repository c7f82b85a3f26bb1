"""Films of policies, side by side on the same course."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from robopolicy.cli.takes import Take
from robopolicy.cli.tasks import TASKS
from robopolicy.viz import overlay
from robopolicy.viz.contact_sheet import contact_sheet
from robopolicy.viz.video import open_video

if TYPE_CHECKING:
    from robopolicy.viz.overlay import Picture

SHEET = 12  # frames of a contact sheet


class Spread:
    """Frames evenly spaced over an episode of unknown length, without keeping all of them."""

    def __init__(self, number: int) -> None:
        self._number, self._every, self._seen = number, 1, 0
        self._kept: list[tuple[int, Picture]] = []

    def add(self, frame: Picture) -> None:
        """Take the next frame."""
        if self._seen % self._every == 0:
            self._kept.append((self._seen, frame))
        self._seen += 1
        if len(self._kept) == 4 * self._number:
            self._kept, self._every = self._kept[::2], 2 * self._every

    def chosen(self) -> list[tuple[int, Picture]]:
        """Frames with their numbers, the first among them, and one near the end."""
        places = np.linspace(0, len(self._kept) - 1, min(self._number, len(self._kept)))
        return [self._kept[round(place)] for place in places]


def film(
    policies: Sequence[str],
    video: Path | None,
    *,
    task: str,
    seed: int,
    engine: str,
    size: tuple[int, int],
    preset: str = "paper",
    episode_seconds: float | None = None,
    slow: float = 1.0,
    sheet: Path | None = None,
    rerun: Path | None = None,
) -> list[dict[str, Any]]:
    """Play an episode of each policy from the same seed, and film them together.

    Args:
      policies: RUN|oracle|blind|random each. Whose episode ends first stands still until all have ended.
      video: the .mp4 to write.
      task: what all of them do.
      seed: of the episodes.
      engine: that simulates them.
      size: width and height of each one's picture.
      preset: variant of the task.
      episode_seconds: longest episode; None for the preset's.
      slow: how many times slower than life the video is. On stepping stones a slow video shows every control
        period.
      sheet: a .png of frames evenly spaced over the episode.
      rerun: an .rrd of poses, images and numbers.

    Returns how each episode went.
    """
    with ExitStack() as stack:
        takes = []
        for policy in policies:
            takes.append(Take(policy, task, engine, preset, episode_seconds, size))
            stack.callback(takes[-1].env.close)
            takes[-1].begin(seed, ticks=slow > 1)
        period = 1 / TASKS[task].rate
        rate = takes[0].pictures_a_step / (slow * period)
        file = None if video is None else stack.enter_context(open_video(video, rate))
        spread = Spread(SHEET)
        log = None
        if rerun is not None:
            from robopolicy.viz.recording import open_recording

            log = stack.enter_context(open_recording(rerun))
        shown: list[list[Picture]] = [[] for _ in takes]
        steps = 0
        while any(take.over is None for take in takes):
            if log is not None:
                log.at(steps * period, steps)
            for number, take in enumerate(takes):
                # A policy whose episode has ended shows its last picture.
                shown[number] = shown[number][-1:] if take.over else take.advance(log)
            for moment in range(max(map(len, shown))):
                frame = side_by_side([pictures[min(moment, len(pictures) - 1)] for pictures in shown])
                if file is not None:
                    file.add(frame)
            spread.add(frame)
            steps += 1
        if sheet is not None:
            numbers, frames = zip(*spread.chosen(), strict=True)
            contact_sheet(sheet, frames, [f"{(number + 1) * period:.2f} s" for number in numbers])
    return [take.result() for take in takes]


def side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Pictures [H, W, 3] of one size in rows that are about as many as their columns."""
    columns = math.ceil(math.sqrt(len(pictures)))
    empty = np.full_like(pictures[0], overlay.PAPER)
    filled = [*pictures, *[empty] * (-len(pictures) % columns)]
    rows = [np.concatenate(filled[at : at + columns], axis=1) for at in range(0, len(filled), columns)]
    return np.concatenate(rows)
