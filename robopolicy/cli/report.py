"""robopolicy report"""

from __future__ import annotations

import json as json_format
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import cv2
import tyro

from robopolicy.cli.progress import CountingProgress, Lines
from robopolicy.envs.registry import task_class
from robopolicy.experiments import report_sections
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.evaluation import FIRST_SEED, evaluate, seeds_from
from robopolicy.experiments.films import check_size, film
from robopolicy.experiments.flop_table import row, subject
from robopolicy.experiments.learning_curves import Run, all_logged, groups
from robopolicy.experiments.output_files import check_file
from robopolicy.experiments.provenance import git_revision, versions
from robopolicy.experiments.runs import load, played_on
from robopolicy.viz.report import Film, page
from robopolicy.viz.video import still
from robopolicy.writing import scratch, write_atomically

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
    engine: str | None = None
    """Physics engine, bullet or mujoco. Default: the one that the first run was trained on; for baselines
    alone, bullet where it is installed."""
    preset: str | None = None
    """Variant of the task; default: its first one, paper."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    video: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: False)")] = True
    """Leave the films out, with which the page takes longest."""
    size: tuple[int, int] = (640, 360)
    """Width and height of a film, both even."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play, film, write."""
        check_file("out", self.out, (".html",))
        seeds = seeds_from(self.seed, PLAYED if self.episodes is None else self.episodes, fewest=0)
        check_size(self.size)
        runs = all_logged(self.runs)
        environment = played_on(self.runs, None, self.engine, self.preset, self.episode_seconds)
        for run in runs:
            load(run.name)
        environment.showing({}).make().close()
        played = self._evaluations(runs, environment, seeds)
        with scratch() as folder:
            films = [self._film(run, environment, folder / f"{n}.mp4") for n, run in enumerate(runs)]
            self._write(runs, environment, played, films, folder)
        result = {
            "out": str(self.out),
            "bytes": self.out.stat().st_size,
            "task": runs[0].config["task"],
            "evaluations": [evaluation and evaluation | {"policy": run.name}
                            for run, evaluation in zip(runs, played, strict=True)],
        }  # fmt: skip
        words = f"{self.out}: {len(runs)} run{'s' * (len(runs) > 1)}, {result['bytes'] / 1e6:.1f} MB"
        print(json_format.dumps(result) if self.json else words)

    def _evaluations(
        self, runs: list[Run], environment: Environment, seeds: range
    ) -> list[dict[str, Any] | None]:
        """The evaluation of each run; None where there are no seeds."""
        found: list[dict[str, Any] | None] = [None] * len(runs)
        if self.episodes is None and self.episode_seconds is None:
            kept = environment.engine, environment.preset
            found = [report_sections.kept_evaluation(run.name, *kept) for run in runs]
        missing = [place for place, kept in enumerate(found) if kept is None] if seeds else []
        with CountingProgress("playing", len(missing) * len(seeds), "episodes") as progress:
            for place in missing:
                name, hooks = runs[place].name, {"on_begin": progress.begin, "on_episode": progress.advance}
                found[place] = evaluate(name, environment, seeds, **hooks).summary()
        return found

    def _film(self, run: Run, environment: Environment, video: Path) -> Film | None:
        if not self.video:
            return None
        Lines().say(f"filming {run.name}")
        (episode,) = film([run.name], environment, video, seed=self.seed, size=self.size)
        poster = video.with_suffix(".jpg")
        poster.write_bytes(cv2.imencode(".jpg", still(video)[..., ::-1])[1].tobytes())
        declared = task_class(environment.task).outcomes
        outcomes = ", ".join(outcome.said.format(episode[outcome.name]) for outcome in declared)
        ending = f"return {episode['return']:.2f}, ended by {episode['cause']}"
        return Film(video, poster, f"Seed {self.seed}: {outcomes}, {ending}")

    def _write(
        self,
        runs: list[Run],
        environment: Environment,
        played: list[dict[str, Any] | None],
        films: list[Film | None],
        folder: Path,
    ) -> None:
        prices = [row(subject(run.name), per_second=False) for run in runs]
        grouped = groups(runs)
        sections = [
            report_sections.curves(grouped, folder),
            *report_sections.evaluation(grouped, runs, played),
            report_sections.flops(runs, prices, folder),
            report_sections.settings(runs),
            report_sections.made_with(runs, versions(), git_revision()),
        ]
        labels = "; ".join(group.label for group in grouped)
        count = "one run" if len(runs) == 1 else f"{len(runs)} runs"
        cards = [
            report_sections.card(run, evaluation, price, film)
            for run, evaluation, price, film in zip(runs, played, prices, films, strict=True)
        ]
        command = shlex.join(self._command(environment.engine))
        made = f"Written by robopolicy {versions()['robopolicy']}: {command}"
        write_atomically(self.out, page(environment.task, f"{labels}: {count}", cards, sections, made))

    def _command(self, engine: str | None) -> list[str]:
        """The command line that makes this page."""
        words = ["robopolicy", "report", *self.runs, "--out", str(self.out)]
        words += [] if engine is None else ["--engine", engine]
        for name in ("episodes", "seed", "preset", "episode_seconds"):
            value = getattr(self, name)
            if value is not None:
                words += [f"--{name.replace('_', '-')}", str(value)]
        return [*words, *(["--size", *map(str, self.size)] if self.video else ["--no-video"])]
