"""robopolicy inspect"""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

Told = dict[str, Any]

OF_EPISODES = ("episode", "video", "sheet", "frames")
FRAMES = 12  # of a contact sheet


@dataclass(frozen=True)
class Inspect:
    """Show what a run, a bundle or a dataset holds, or an episode of a dataset.

    Of a run: where it stands, settings, checkpoints, log, parameters and features by name, FLOPs. Of a
    bundle: inputs and outputs with units and limits, times, and that all files are as its sums list them. Of
    a dataset: episodes, what was seen and done, and success.

    For example:
        robopolicy inspect runs/first
        robopolicy inspect bundle --json
        robopolicy inspect datasets/sweep-v0 --episode 3 --sheet episode.png --video episode.mp4
    """

    what: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="RUN|BUNDLE|DATASET")]]
    """A run folder, the name of a shipped policy, the folder of a bundle, or that of a dataset."""
    episode: int | None = None
    """Episode of a dataset to show, from 0 on. Default: all of them in numbers; 0 for a video or a sheet."""
    video: Path | None = None
    """Also write that episode to this .mp4, with its actions and rewards."""
    sheet: Path | None = None
    """Also write frames of that episode to this .png, on one page."""
    frames: int | None = None
    """How many frames are on it, evenly spread. Default: 12."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Read, write files, print."""
        path = Path(self.what)
        if (path / "data").is_dir() and not (path / "config.json").is_file():
            told = self._dataset(path)
        else:
            for name in OF_EPISODES:
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is {str(getattr(self, name))!r}: only a dataset has episodes")
            told = _run_or_bundle(self.what)
        print(json_format.dumps(told) if self.json else _words(told))

    def _dataset(self, path: Path) -> Told:
        from robopolicy.experiments.contents import dataset_contents, episode_contents
        from robopolicy.experiments.output_files import check_file
        from robopolicy.training.datasets import open_dataset

        check_file("video", self.video, (".mp4",))
        check_file("sheet", self.sheet, (".png",))
        if self.frames is not None and not 1 <= self.frames <= 100:
            raise ValueError(f"frames is {self.frames}: it must be from 1 to 100")
        if self.frames is not None and self.sheet is None:
            raise ValueError(f"frames is {self.frames}: they are for --sheet, which is not given")
        dataset = open_dataset(path, None)
        if self.episode is None and self.video is None and self.sheet is None:
            return dataset_contents(dataset)
        number = self.episode or 0
        told = episode_contents(dataset, number)
        if self.video is not None or self.sheet is not None:
            from robopolicy.experiments.dataset_pictures import write_sheet, write_video

            if self.video is not None:
                write_video(self.video, dataset, number)
            if self.sheet is not None:
                write_sheet(self.sheet, dataset, number, self.frames or FRAMES)
        return {
            **told,
            **{name: str(getattr(self, name)) for name in ("video", "sheet") if getattr(self, name)},
        }


def _run_or_bundle(what: str) -> Told:
    from robopolicy.experiments.contents import bundle_contents, run_contents
    from robopolicy.experiments.runs import find_run

    path = Path(what)
    if any((path / name).exists() for name in ("manifest.json", "SHA256SUMS")):
        return bundle_contents(path)
    try:
        folder, _ = find_run(what)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{error}, or the folder of a bundle or of a dataset") from error
    if not (folder / "config.json").is_file():
        raise ValueError(
            f"RUN|BUNDLE|DATASET is {what!r}: it must hold config.json as a run does, manifest.json as a "
            "bundle does, or data/ as a dataset does"
        )
    return run_contents(what)


def _words(told: Told) -> str:
    from robopolicy.experiments.contents_text import WORDS

    # Strangers' words may hold commands to a terminal.
    lines = ["".join(c if c.isprintable() else " " for c in line) for line in WORDS[told["kind"]](told)]
    return "\n".join(line.rstrip() for line in lines)
