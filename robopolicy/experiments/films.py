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
from robopolicy.experiments.evaluation import FIRST_SEED, check_seeds
from robopolicy.experiments.filmed_episode import FilmedEpisode
from robopolicy.experiments.output_files import check_file
from robopolicy.experiments.players import Who
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_number
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
    players: Who | Sequence[Who],
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
      players: a policy, the name of a run or a baseline, or a function; or two to nine of them. A player
        whose episode ends first stands still until all have ended.
      env: the task; each player has its own environment with the same settings.
      video: the .mp4 to write.
      seed: of the episodes.
      size: width and height of each player's picture, both even, in pixels.
      slow: how many times slower than life the video is, 1 to 100. A slow video shows every picture that a
        step can give.
      sheet: a .png of frames evenly spaced over the episode.
      rerun: an .rrd of poses, images and numbers.
      on_begin: called once the input is checked.
      on_step: called after each step of the episodes.

    Returns the result of each episode. Raises ValueError or FileNotFoundError, in one line, for bad input,
    and ModuleNotFoundError without the package that a file needs.
    """
    if isinstance(players, str | Policy) or callable(players):
        players = [players]
    video, sheet, rerun = (None if path is None else Path(path) for path in (video, sheet, rerun))
    _check(players, {"video": video, "sheet": sheet, "rerun": rerun}, size, slow, seed)
    environment = Environment.of(env)
    with ExitStack() as stack:
        episodes = []
        for who in players:
            episodes.append(FilmedEpisode(who, environment, size))
            stack.callback(episodes[-1].env.close)
        names = [episode.player.name for episode in episodes]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"players has {name!r} twice: each must have a name of its own")
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
        raise ValueError(f"players is {len(players)} players: it must be 1 to {MOST}")
    if not any(files.values()):
        raise ValueError("video is None: give video, sheet or rerun, or several of them")
    for (name, path), suffix in zip(files.items(), (".mp4", ".png", ".rrd"), strict=True):
        check_file(name, path, (suffix,))
    if files["rerun"] is not None:
        import robopolicy.viz.recording  # noqa: F401 (a missing package is reported before any work)
    check_size(size)
    check_number("slow", slow, 1.0, SLOWEST)
    check_seeds([seed])


def check_size(size: tuple[int, int]) -> None:
    """Raise ValueError unless `size` is a width and a height that a film can have."""
    whole = isinstance(size, tuple | list) and len(size) == 2 and all(isinstance(side, int) for side in size)
    if not whole or any(side % 2 or not LEAST_SIDE <= side <= MOST_SIDE for side in size):
        raise ValueError(f"size is {size}: it must be two even numbers from {LEAST_SIDE} to {MOST_SIDE}")


def side_by_side(pictures: Sequence[Picture]) -> Picture:
    """Pictures [H, W, 3] of one size in rows that are about as many as their columns."""
    columns = math.ceil(math.sqrt(len(pictures)))
    empty = np.full_like(pictures[0], overlay.PAPER)
    filled = [*pictures, *[empty] * (-len(pictures) % columns)]
    rows = [np.concatenate(filled[at : at + columns], axis=1) for at in range(0, len(filled), columns)]
    return np.concatenate(rows)
