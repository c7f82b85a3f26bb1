"""robopolicy report"""

from __future__ import annotations

import json as json_format
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robopolicy.cli.options import Engine, Env, EpisodeSeconds, Json, Preset, Renderer, Robot, Seed
from robopolicy.cli.progress import CountingProgress
from robopolicy.experiments.evaluation import FIRST_SEED
from robopolicy.experiments.reporting import report


@dataclass(frozen=True)
class Report:
    """Write a page about runs to send to someone: film, curves, evaluation, FLOPs, settings, versions.

    The page is one file that loads nothing else. It works without a network, on a phone and on paper. Several
    runs of one task stand side by side. The page shows the evaluation stored beside a run, as shipped
    policies have one. The command plays the other runs.

    For example:
        robopolicy report runs/first --out report.html
        robopolicy report runs/seed-0 runs/seed-1 stepping-stones-softmax --out report.html --no-video
    """

    runs: Positional[Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]")]]
    """Run folders or names of shipped policies, all of one task, all trained in the same way."""
    out: Path
    """Page to write: .html."""
    episodes: int | None = None
    """Unseen episodes that each run plays; 0 for none. Default: the stored evaluation, or 20."""
    seed: Seed = FIRST_SEED
    env: Env = None
    engine: Engine = None
    preset: Preset = None
    episode_seconds: EpisodeSeconds = None
    renderer: Renderer = None
    robot: Robot = None
    video: Annotated[bool, arg(help_behavior_hint="(default: False)")] = True
    """Leave out the films, which take most of the time."""
    size: tuple[int, int] = (640, 360)
    """Width and height of a film, both even, in pixels."""
    json: Json = False

    def run(self) -> None:
        """Play, film, write."""
        names = (
            "episodes",
            "seed",
            "engine",
            "preset",
            "episode_seconds",
            "renderer",
            "robot",
            "video",
            "size",
        )
        with CountingProgress("playing", None, "episodes") as progress:
            result = report(
                self.runs,
                self.out,
                **{name: getattr(self, name) for name in names},
                command=self._command,
                on_play=progress.begin,
                on_episode=progress.advance,
                on_film=lambda name: progress.say(f"filming {name}"),
                say=progress.say,
            )
        count = len(self.runs)
        words = f"{self.out}: {count} run{'s' * (count > 1)}, {result['bytes'] / 1e6:.1f} MB"
        print(json_format.dumps(result) if self.json else words)

    def _command(self, engine: str | None) -> str:
        """The command line that makes this page."""
        words = ["robopolicy", "report", *self.runs, "--out", str(self.out)]
        words += [] if engine is None else ["--engine", engine]
        for name in ("episodes", "seed", "preset", "episode_seconds", "renderer", "robot", "env"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join([*words, *(["--size", *map(str, self.size)] if self.video else ["--no-video"])])
