"""robopolicy grid"""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, Suppress, arg

from robopolicy.cli import DONE, FAILED, INTERRUPTED
from robopolicy.cli.options import Json, settings_of
from robopolicy.cli.progress import Lines, TrainingProgress
from robopolicy.cli.train_es import ESOptions
from robopolicy.envs.registry import check_name, task_class
from robopolicy.experiments.comparison_table import table
from robopolicy.experiments.grid import Cell, GridConfig, Results, Trained, grid_results, train_grid
from robopolicy.experiments.grid_drawing import draw_grid
from robopolicy.experiments.hooks import Hooks
from robopolicy.experiments.output_files import check_picture
from robopolicy.naming import one_line
from robopolicy.training.es import ESConfig


@dataclass(frozen=True)
class GridSearch(ESConfig):
    """Settings of all trainings of a grid."""

    seed: Suppress[int] = 0  # a grid takes --seeds


@dataclass(frozen=True, kw_only=True)
class Grid(ESOptions):
    """Train every mechanism with every seed, evaluate all policies alike, and compare them.

    Each training is a run in a folder of its own below the grid's, which other commands take. The same
    command continues a grid that was stopped: complete runs stay, others continue to the same bits. It may
    add mechanisms and seeds; a grid with other settings is refused.

    For example:
        robopolicy grid runs/table --attention softmax "angular_hybrid(m=8, n=8)" all none --seeds 0 1 2 3

    Ctrl-C or SIGTERM stops the grid after the current generation.
    """

    folder: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    """Folder of the grid."""
    search: GridSearch = field(default_factory=GridSearch)
    grid: GridConfig = field(default_factory=GridConfig)
    show: bool = False
    """Train nothing, and show the runs that are complete."""
    picture: Path | None = None
    """Picture to write, .png or .svg: returns over the FLOPs of a step and of training."""
    json: Json = False

    def run(self) -> int:
        """Train, evaluate, print, draw. Returns the exit code."""
        check_picture("picture", self.picture)
        if self.show:
            self._check_shown()
        lines = Lines()
        trained = Trained([], {}, "") if self.show else self._trained(lines)
        if trained.stopped:
            lines.say(f"stopped in {trained.stopped}; the same command continues")
        results = grid_results(self.folder)
        if self.json:
            print(json_format.dumps(results._asdict() | {"failed": trained.failed}))
        else:
            print(_words(results))
        for note in results.notes:
            lines.say(f"note: {note}")
        for name, error in (results.damaged | trained.failed).items():
            lines.say(one_line(f"{name} failed: {error}"))
        if self.picture is not None and any(results.rows.values()):  # last: a failure to draw hides nothing
            for note in draw_grid(self.picture, results.rows):
                lines.say(f"note: {note}")
        if trained.stopped:
            return INTERRUPTED
        return FAILED if trained.failed or results.damaged else DONE

    def _check_shown(self) -> None:
        """Import the module of the task. Raises ValueError, in one line, for options without effect."""
        task = self.task if ":" in self.task else Grid.task
        alone = Grid(folder=self.folder, task=task, show=True, picture=self.picture, json=self.json)
        useful = {field.name: value for field, value in settings_of(alone)}
        useless = [field.name for field, value in settings_of(self) if value != useful[field.name]]
        if useless:
            names = ", ".join(useless)
            raise ValueError(f"show is True: it takes env, picture and json alone, not {names}")
        check_name(task)

    def _trained(self, lines: Lines) -> Trained:
        @contextmanager
        def showing(cell: Cell) -> Iterator[Hooks]:
            search, outcomes = cell.search, task_class(self.task).outcomes
            goal = search.variants[-1].title
            title = f"{cell.attention} on {self.task}, seed {cell.seed}"
            with TrainingProgress(search.config, title, goal, outcomes) as progress:
                yield progress.hooks()

        try:
            return train_grid(
                self.folder,
                self.environment,
                self.grid,
                self.search,
                presets=self.presets,
                evaluator=self.evaluator,
                wandb=self.wandb,
                say=lines.say,
                showing=showing,
                **self.policy,
            )
        except KeyboardInterrupt:
            lines.say("complete runs and checkpoints are saved: the same command continues")
            raise


def _words(results: Results) -> str:
    parts = [table(rows, title) for title, rows in results.rows.items() if rows]
    if results.incomplete:
        parts.append(f"not complete: {', '.join(map(one_line, results.incomplete))}")
    return "\n\n".join(parts or ["no run is complete"])
