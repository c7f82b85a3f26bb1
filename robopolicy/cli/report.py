"""robopolicy report"""

from __future__ import annotations

import json as json_format
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robopolicy.cli.evaluate import FIRST_SEED
from robopolicy.cli.rollout import check_size
from robopolicy.cli.tasks import TASKS, make_task
from robopolicy.envs.physics import default_engine

if TYPE_CHECKING:
    from robopolicy.cli.logged import Run
    from robopolicy.viz.report import Film

PLAYED = 20  # episodes, where no evaluation is kept beside a run


@dataclass(frozen=True)
class Report:
    """Write a page about runs, to be sent to someone: film, curves, evaluation, FLOPs, settings, versions.

    The page is one file that needs no other: it is read without a network, on a phone and on paper. Several
    runs of one task stand side by side. An evaluation that is kept beside a run, as for the shipped policies,
    is shown as it is; other runs are played.

    For example:
        robopolicy report runs/first --out report.html
        robopolicy report runs/seed-0 runs/seed-1 stepping-stones-softmax --out report.html --no-video
    """

    runs: tyro.conf.Positional[Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN [RUN ...]")]]
    """Run folders or names of shipped policies, all of one task, all trained in the same way."""
    out: Path
    """The .html to write."""
    episodes: int | None = None
    """Unseen episodes that each run plays, on the seeds from --seed on; 0 for none. Default: the evaluation
    that is kept beside a run, and 20 where there is none."""
    seed: int = FIRST_SEED
    """Seed of the first episode, which is the one that is filmed."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Variant of the task."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    video: bool = True
    """Leave the films out, with which the page takes longest."""
    size: tuple[int, int] = (640, 360)
    """Width and height of a film, both even."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play, film, write."""
        from robopolicy.cli.files import check_file
        from robopolicy.cli.logged import all_logged

        check_file("out", self.out, (".html",))
        import robopolicy.viz.report  # noqa: F401 (what is not installed is told before any work is done)

        if self.episodes is not None and self.episodes < 0:
            raise ValueError(f"episodes is {self.episodes}: it must be 0 or more")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        check_size(self.size)
        runs = all_logged(self.runs)
        self._check_played(runs)
        played = self._evaluations(runs)
        with tempfile.TemporaryDirectory() as scratch:
            films = [self._film(run, Path(scratch) / f"{n}.mp4") for n, run in enumerate(runs)]
            self._write(runs, played, films, Path(scratch))
        result = {
            "out": str(self.out),
            "bytes": self.out.stat().st_size,
            "task": runs[0].config["task"],
            "evaluations": [evaluation and evaluation | {"policy": run.name}
                            for run, evaluation in zip(runs, played, strict=True)],
        }  # fmt: skip
        words = f"{self.out}: {len(runs)} run{'s' * (len(runs) > 1)}, {result['bytes'] / 1e6:.1f} MB"
        print(json_format.dumps(result) if self.json else words)

    def _check_played(self, runs: list[Run]) -> None:
        """Raise ValueError or FileNotFoundError for runs that cannot be played, before any is."""
        from robopolicy.cli.runs import load_run

        for run in runs:
            load_run(run.name)
        task = runs[0].config["task"]
        env = make_task(task, self.engine, self.preset, self.episode_seconds, **TASKS[task].unseen)
        env.close()

    def _evaluations(self, runs: list[Run]) -> list[dict[str, Any] | None]:
        """How each run does; None where nobody asked."""
        from robopolicy.cli.evaluate import evaluation
        from robopolicy.cli.findings import kept_evaluation
        from robopolicy.cli.progress import CountingProgress

        found: list[dict[str, Any] | None] = [None] * len(runs)
        if self.episodes is None and self.episode_seconds is None:
            found = [kept_evaluation(run.name, self.engine, self.preset) for run in runs]
        count = PLAYED if self.episodes is None else self.episodes
        missing = [place for place, kept in enumerate(found) if kept is None] if count else []
        seeds = range(self.seed, self.seed + count)
        with CountingProgress("playing", len(missing) * count, "episodes") as progress:
            for place in missing:
                found[place], _ = evaluation(
                    runs[place].name,
                    runs[place].config["task"],
                    seeds,
                    engine=self.engine,
                    preset=self.preset,
                    episode_seconds=self.episode_seconds,
                    on_episode=progress.advance,
                )
        return found

    def _film(self, run: Run, video: Path) -> Film | None:
        if not self.video:
            return None
        import cv2

        from robopolicy.cli.filming import film
        from robopolicy.cli.progress import Lines
        from robopolicy.viz.report import Film
        from robopolicy.viz.video import still

        Lines().say(f"filming {run.name}")
        task = run.config["task"]
        (told,) = film(
            [run.name],
            video,
            task=task,
            seed=self.seed,
            engine=self.engine,
            preset=self.preset,
            episode_seconds=self.episode_seconds,
            size=self.size,
        )
        poster = video.with_suffix(".jpg")
        if not cv2.imwrite(str(poster), still(video)[..., ::-1]):
            raise OSError(f"the film's poster could not be written to {str(poster.parent)!r}")
        outcomes = ", ".join(outcome.said.format(told[outcome.name]) for outcome in TASKS[task].outcomes)
        caption = f"Seed {self.seed}: {outcomes}, return {told['return']:.2f}, ended by {told['cause']}"
        return Film(video, poster, caption)

    def _write(
        self,
        runs: list[Run],
        played: list[dict[str, Any] | None],
        films: list[Film | None],
        scratch: Path,
    ) -> None:
        from robopolicy.cli import findings
        from robopolicy.cli.logged import groups
        from robopolicy.cli.prices import row, subject
        from robopolicy.cli.provenance import git_revision, versions
        from robopolicy.training.checkpoint import write_atomically
        from robopolicy.viz.report import page

        prices = [row(subject(run.name), per_second=False) for run in runs]
        grouped = groups(runs)
        task = runs[0].config["task"]
        sections = [
            findings.curves(grouped, scratch),
            *findings.evaluation(grouped, runs, played),
            findings.flops(runs, prices, scratch),
            findings.settings(runs),
            findings.made_with(runs, versions(), git_revision()),
        ]
        labels = "; ".join(group.label for group in grouped)
        count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
        cards = [
            findings.card(run, evaluation, price, film)
            for run, evaluation, price, film in zip(runs, played, prices, films, strict=True)
        ]
        made = f"Written by robopolicy {versions()['robopolicy']}: {shlex.join(self._command())}"
        write_atomically(self.out, page(task, f"{labels}: {count}", cards, sections, made))

    def _command(self) -> list[str]:
        """The command line that makes this page."""
        words = ["robopolicy", "report", *self.runs, "--out", str(self.out)]
        for name in ("episodes", "seed", "engine", "preset", "episode_seconds"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return [*words, *(["--size", *map(str, self.size)] if self.video else ["--no-video"])]
