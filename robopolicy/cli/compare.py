"""robopolicy compare"""

from __future__ import annotations

import json as json_format
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from robopolicy.cli.options import Engine, Env, EpisodeSeconds, Json, Preset, Renderer, Robot, Seed
from robopolicy.cli.progress import CountingProgress
from robopolicy.experiments.claims import check_claim, off_budget
from robopolicy.experiments.comparison import compare, compared_on, draw_comparison, runs_in
from robopolicy.experiments.comparison_table import table
from robopolicy.experiments.evaluation import FIRST_SEED, seeds_from
from robopolicy.experiments.output_files import check_picture
from robopolicy.experiments.runs import config_of, find_run
from robopolicy.experiments.trainings import difference
from robopolicy.naming import one_line


@dataclass(frozen=True)
class Compare:
    """Play runs on the same unseen episodes: return against FLOPs, latency and parameters.

    Runs that differ in nothing but their seeds count as one policy with several trainings. Their row has
    the mean, the spread between them, and the interquartile mean with its 95 % interval. Any two policies of
    several seeds have a verdict. Several policies of one run, and copies of a run, stay apart.

    For example:
        robopolicy compare stepping-stones-angular-8x8 stepping-stones-positive-256 --episodes 20
        robopolicy compare runs/seed-0 runs/seed-1 runs/softmax-0 --picture compared.svg
    """

    runs: Positional[Annotated[tuple[str, ...], arg(metavar="RUN [RUN ...]")]]
    """Run folders, folders of runs such as a grid's, or names of shipped policies, all of one task."""
    episodes: int = 20
    """Episodes that each run plays."""
    seed: Seed = FIRST_SEED
    env: Env = None
    engine: Engine = None
    preset: Preset = None
    episode_seconds: EpisodeSeconds = None
    renderer: Renderer = None
    robot: Robot = None
    picture: Path | None = None
    """Picture of return against FLOPs to write: .png or .svg."""
    claim: bool = False
    """Refuse a comparison that cannot be quoted: fewer than four trainings of a policy, trainings that differ
    in preset, engine or budget or are not complete, last checkpoints beside @best ones, seeds on which
    trainings choose policies (8000 to 8999), or no controls."""
    json: Json = False

    def run(self) -> None:
        """Play, print, draw."""
        seeds = seeds_from(self.seed, self.episodes)
        check_picture("picture", self.picture)
        runs = runs_in(self.runs)
        environment = compared_on(
            runs, self.engine, self.preset, self.episode_seconds, self.renderer, self.robot
        )
        if self.claim:
            check_claim(runs, seeds)
        with CountingProgress("playing", len(runs) * self.episodes, "episodes") as progress:
            rows = compare(runs, environment, seeds, on_begin=progress.begin, on_episode=progress.advance)
        print(json_format.dumps(rows) if self.json else table(rows, environment.title))
        trainings: dict[Path, str] = {}
        for name in runs:  # several policies may be of one training
            trainings.setdefault(find_run(name)[0], name)
        notes = [*filter(None, map(off_budget, trainings.values()))]
        if differs := difference({name: config_of(find_run(name)[0]) for name in runs}):
            notes.append(f"the trainings differ, not only the policies: {differs}")
        for note in notes:
            print(one_line(note), file=sys.stderr if self.json else sys.stdout)
        if self.picture is not None:  # last, so that no failure to write it hides the results
            draw_comparison(self.picture, rows, environment.title)
