"""Films of policies, side by side on the same course."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.filmed_episode import FilmedEpisode
from robopolicy.experiments.output_files import check_file
from robopolicy.experiments.players import Who
from robopolicy.viz import overlay
from robopolicy.viz.contact_sheet import contact_sheet
from robopolicy.viz.overlay import Picture
from robopolicy.viz.video import open_video

SHEET = 12  # frames of a contact sheet
MOST = 9  # players in a film
LEAST_SIDE, MOST_SIDE = 240, 4096  # pixels; H.264 takes 16384, of which nine players share a third each
SLOWEST = 100.0


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
    players: Sequence[Who],
    env: str | gymnasium.Env[Any, Any] | Environment,
    video: str | Path | None = None,
    *,
    seed: int = FIRST_SEED,
    size: tuple[int, int] = (960, 540),
    slow: float = 1.0,
    sheet: str | Path | None = None,
    rerun: str | Path | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_step: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Film an episode of each player, side by side, all from the same seed.

    Args:
      players: one to nine policies, names of runs or baselines, or functions. A player whose episode ends
        first stands still until all have ended.
      env: the task; each player acts in an environment of its own, made like this one.
      video: the .mp4 to write.
      seed: of the episodes.
      size: width and height of each player's picture, both even, in pixels.
      slow: how many times slower than life the video is, 1 to 100. A slow video shows every picture that a
        step can give.
      sheet: a .png of frames evenly spaced over the episode.
      rerun: an .rrd of poses, images and numbers.
      on_begin: called once, when the input is checked.
      on_step: called after each step of the episodes.

    Returns how each episode went. Raises ValueError or FileNotFoundError, in one line, for what cannot be
    filmed, and ModuleNotFoundError without the package that a file needs.
    """
    video, sheet, rerun = (None if path is None else Path(path) for path in (video, sheet, rerun))
    _check(players, {"video": video, "sheet": sheet, "rerun": rerun}, size, slow, seed)
    environment = Environment.of(env)
    with ExitStack() as stack:
        episodes = []
        for who in players:
            episodes.append(FilmedEpisode(who, environment, size))
            stack.callback(episodes[-1].env.close)
        on_begin()
        for episode in episodes:
            episode.begin(seed, ticks=slow > 1)
        period = episodes[0].task.control_period
        rate = episodes[0].pictures_a_step / (slow * period)
        file = None if video is None else stack.enter_context(open_video(video, rate))
        spread = Spread(SHEET)
        log = None
        if rerun is not None:
            from robopolicy.viz.recording import open_recording

            log = stack.enter_context(open_recording(rerun))
        shown: list[list[Picture]] = [[] for _ in episodes]
        steps = 0
        while any(episode.over is None for episode in episodes):
            if log is not None:
                log.at(steps * period, steps)
            for number, episode in enumerate(episodes):
                # A policy whose episode has ended shows its last picture.
                shown[number] = shown[number][-1:] if episode.over else episode.advance(log)
            for moment in range(max(map(len, shown))):
                frame = side_by_side([pictures[min(moment, len(pictures) - 1)] for pictures in shown])
                if file is not None:
                    file.add(frame)
            spread.add(frame)
            steps += 1
            on_step()
        if sheet is not None:
            numbers, frames = zip(*spread.chosen(), strict=True)
            contact_sheet(sheet, frames, [f"{(number + 1) * period:.2f} s" for number in numbers])
    return [episode.result() for episode in episodes]


def _check(
    players: Sequence[Who],
    files: Mapping[str, Path | None],
    size: tuple[int, int],
    slow: float,
    seed: int,
) -> None:
    if not 1 <= len(players) <= MOST:
        raise ValueError(f"RUN is given {len(players)} times: it must be once to {MOST} times")
    names = [who for who in players if isinstance(who, str)]
    if len(set(names)) < len(names):
        raise ValueError(f"RUN is given as {', '.join(names)}: none may be given twice")
    if not any(files.values()):
        raise ValueError("video is not given: give video, sheet or rerun, or several of them")
    for (name, path), suffix in zip(files.items(), (".mp4", ".png", ".rrd"), strict=True):
        check_file(name, path, (suffix,))
    if files["rerun"] is not None:
        import robopolicy.viz.recording  # noqa: F401 (a package that is missing is reported before any work)
    check_size(size)
    if not (math.isfinite(slow) and 1.0 <= slow <= SLOWEST):
        raise ValueError(f"slow is {slow}: it must be a number from 1 to {SLOWEST:g}")
    if seed < 0:
        raise ValueError(f"seed is {seed}: it must be 0 or more")


def check_size(size: tuple[int, int]) -> None:
    """Raise ValueError for pictures that cannot be filmed."""
    if any(side % 2 or not LEAST_SIDE <= side <= MOST_SIDE for side in size):
        raise ValueError(f"size is {size}: both sides must be even, and {LEAST_SIDE} to {MOST_SIDE}")


def side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Pictures [H, W, 3] of one size in rows that are about as many as their columns."""
    columns = math.ceil(math.sqrt(len(pictures)))
    empty = np.full_like(pictures[0], overlay.PAPER)
    filled = [*pictures, *[empty] * (-len(pictures) % columns)]
    rows = [np.concatenate(filled[at : at + columns], axis=1) for at in range(0, len(filled), columns)]
    return np.concatenate(rows)
