"""Films of policies, side by side in the same environment."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import FIRST_SEED, LAST_SEED
from robopolicy.experiments.filmed_episode import FilmedEpisode
from robopolicy.experiments.output_files import as_path, check_file
from robopolicy.experiments.players import PlayerLike
from robopolicy.policies.policy import Policy
from robopolicy.settings import check_count, check_number
from robopolicy.viz import overlay
from robopolicy.viz.contact_sheet import contact_sheet
from robopolicy.viz.overlay import Picture
from robopolicy.viz.video import open_video

SHEET = 12  # frames of a contact sheet
MOST = 9  # players in a film
LEAST_SIDE, MOST_SIDE = 240, 4096  # pixels; H.264 allows 16384, for three players in a row
SLOWEST = 100.0


class Spread:
    """Frames evenly spaced over an episode of unknown length; it stores at most `4 * number` of them."""

    def __init__(self, number: int) -> None:
        self._number, self._every, self._count = number, 1, 0
        self._frames: list[tuple[int, Picture]] = []

    def add(self, frame: Picture) -> None:
        """Add the next frame of the episode."""
        if self._count % self._every == 0:
            self._frames.append((self._count, frame))
        self._count += 1
        if len(self._frames) == 4 * self._number:
            self._frames, self._every = self._frames[::2], 2 * self._every

    def chosen(self) -> list[tuple[int, Picture]]:
        """Frames with their numbers: the first one, one near the end, and others between them."""
        places = np.linspace(0, len(self._frames) - 1, min(self._number, len(self._frames)))
        return [self._frames[round(place)] for place in places]


def film(
    players: PlayerLike | Sequence[PlayerLike],
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
      players: a player, or two to nine of them: a policy, the folder of a run, the name of a shipped policy
        or a baseline, or a function from observation to action. Each has its own name;
        `dataclasses.replace(policy, name=...)` gives a policy another one. A player whose episode ends early
        keeps its last picture.
      env: the task. Each player has its own environment with the same settings.
      video: the .mp4 to write.
      seed: seed of the episodes.
      size: width and height of each player's picture, both even, in pixels.
      slow: slow motion: how many times slower than life the video is, 1 to 100. If it is above 1, the film
        shows every picture that the task draws within a step.
      sheet: a .png with frames evenly spaced over the episode.
      rerun: an .rrd with poses, images and numbers.
      on_begin: called once the input is checked.
      on_step: called after each step of the episodes.

    Returns a dictionary for each player: its name, return, outcomes, success, cause of the end, steps and
    FLOPs. Raises ValueError or FileNotFoundError, in one line, for bad input, and ModuleNotFoundError without
    the package that a file needs.
    """
    if isinstance(players, str | Path | Policy) or callable(players):
        players = [players]
    if not isinstance(players, tuple | list):
        raise ValueError(f"players is {players!r}: it must be a player or a list of players")
    if not 1 <= len(players) <= MOST:
        raise ValueError(f"players is {len(players)} players: it must be 1 to {MOST}")
    if video is None and sheet is None and rerun is None:
        raise ValueError("video is None: give video, sheet or rerun, or several of them")
    video, sheet, rerun = (
        None if path is None else as_path(name, path)
        for name, path in (("video", video), ("sheet", sheet), ("rerun", rerun))
    )
    check_file("video", video, (".mp4",))
    check_file("sheet", sheet, (".png",))
    check_file("rerun", rerun, (".rrd",))
    if rerun is not None:
        import robopolicy.viz.recording  # noqa: F401 (a missing package is reported before any work)
    check_size(size)
    check_number("slow", slow, 1.0, SLOWEST)
    check_count("seed", seed, 0, LAST_SEED)
    seed = int(seed)  # gymnasium takes no numbers of numpy
    environment = Environment.of(env)
    with ExitStack() as stack:
        episodes = []
        for who in players:
            episodes.append(FilmedEpisode(who, environment, size))
            stack.callback(episodes[-1].env.close)
        names = [episode.player.name for episode in episodes]
        for number, name in enumerate(names):
            if name in names[:number]:
                raise ValueError(f"players has {name!r} twice: each must have its own name")
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
            captions = [f"{(number + 1) * period:.2f} s" for number in numbers]
            contact_sheet(sheet, frames, captions, across=frame.shape[1] // size[0])
    return [episode.result() for episode in episodes]


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
