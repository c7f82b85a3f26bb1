"""robopolicy inspect"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robopolicy.cli.options import DatasetCameras, Env, Json
from robopolicy.experiments.contents import contents
from robopolicy.experiments.contents_text import FORMATTERS


@dataclass(frozen=True)
class Inspect:
    """Show the contents of a run, a bundle, a dataset, or an episode of a dataset.

    A run: its status, settings, checkpoints, log, parameters and features by name, and FLOPs. A bundle:
    inputs and outputs with units and limits, times, and its checksums. A dataset: episodes, observations,
    actions and success; also of a dataset of LeRobot.

    For example:
        robopolicy inspect runs/first
        robopolicy inspect bundle --json
        robopolicy inspect datasets/sweep-v0 --episode 3 --sheet episode.png --video episode.mp4
        robopolicy inspect datasets/arm --cameras front
    """

    what: Positional[Annotated[str, arg(metavar="RUN|BUNDLE|DATASET")]]
    """A run folder, the name of a shipped policy, or the folder of a bundle or a dataset."""
    episode: int | None = None
    """Episode of a dataset, from 0. Default: all of them in numbers; 0 for a video or a sheet."""
    video: Path | None = None
    """Video of that episode to write, with actions and rewards: .mp4."""
    sheet: Path | None = None
    """Page of frames of that episode to write: .png."""
    frames: int | None = None
    """Frames on the page, evenly spread. Default: 12."""
    cameras: DatasetCameras = ()
    env: Env = None
    json: Json = False

    def run(self) -> None:
        """Read, write files, print."""
        result = contents(
            self.what,
            self.episode,
            video=self.video,
            sheet=self.sheet,
            frames=self.frames,
            cameras=self.cameras,
            task=self.env,
        )
        if self.json:
            print(json_format.dumps(result))
            return
        for line in FORMATTERS[result["kind"]](result):
            # Text in files of others may hold commands to a terminal.
            print("".join(c if c.isprintable() else " " for c in line).rstrip())
