"""robopolicy rollout"""

from __future__ import annotations

import json as json_format
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from robopolicy.cli.evaluate import FIRST_SEED
from robopolicy.cli.tasks import STONES, TASKS, check_task
from robopolicy.envs.physics import default_engine

MOST = 9  # policies in a film
LEAST_SIDE, MOST_SIDE = 240, 4096  # pixels; H.264 takes 16384, of which nine policies share a third each
SLOWEST = 100.0


@dataclass(frozen=True)
class Rollout:
    """Film an episode of one policy, or of several side by side on the same course.

    On stepping stones: the robot, the footholds that were chosen ringed, both depth images, in red the pixels
    that the attention masked out, and how much each token is attended to. Of the bimanual sweep: what its
    camera sees, and the attention over it. Beneath: return, progress, and FLOPs of a policy step.

    For example:
        robopolicy rollout runs/first --video walk.mp4
        robopolicy rollout stepping-stones-angular-8x8 random --video both.mp4 --slow 4
        robopolicy rollout bimanual-sweep-angular --sheet sweep.png --rerun sweep.rrd
    """

    policies: tyro.conf.Positional[
        Annotated[tuple[str, ...], tyro.conf.arg(metavar="RUN|oracle|blind|random [...]")]
    ]
    """Run folders, names of shipped policies, or baselines; up to nine."""
    video: Path | None = None
    """The mp4 to write."""
    sheet: Path | None = None
    """A contact sheet to write, a png of twelve moments."""
    rerun: Path | None = None
    """A recording for Rerun to write, an rrd of poses, images and numbers; needs robopolicy[rerun]."""
    task: str | None = None
    """Task to play, stepping-stones or bimanual-sweep. Default: what the first run was trained on."""
    seed: int = FIRST_SEED
    """Seed of the episode."""
    engine: str = field(default_factory=default_engine)
    """Physics engine, bullet or mujoco. Default: bullet where it is installed."""
    preset: str = "paper"
    """Variant of the task."""
    episode_seconds: float | None = None
    """Longest episode, in simulated seconds; default: the preset's."""
    size: tuple[int, int] = (960, 540)
    """Width and height of each policy's picture, both even."""
    slow: float = 1.0
    """How many times slower than life the video is; slow stepping stones show every control period."""
    json: Annotated[bool, tyro.conf.arg(help="Print the result as JSON on stdout.")] = False

    def run(self) -> None:
        """Play and film."""
        self._check()
        task = self._task()
        from robopolicy.cli.filming import film

        episodes = film(
            self.policies,
            self.video,
            task=task,
            seed=self.seed,
            engine=self.engine,
            size=self.size,
            preset=self.preset,
            episode_seconds=self.episode_seconds,
            slow=self.slow,
            sheet=self.sheet,
            rerun=self.rerun,
        )
        files = {name: getattr(self, name) for name in ("video", "sheet", "rerun")}
        written = {name: str(path) for name, path in files.items() if path is not None}
        result = {**written, "task": task, "seed": self.seed, "episodes": episodes}
        print(json_format.dumps(result) if self.json else _words(result, list(written.values())))

    def _check(self) -> None:
        from robopolicy.cli.files import check_file

        if not 1 <= len(self.policies) <= MOST:
            raise ValueError(f"RUN is given {len(self.policies)} times: it must be once to {MOST} times")
        if len(set(self.policies)) < len(self.policies):
            raise ValueError(f"RUN is given as {', '.join(self.policies)}: none may be given twice")
        if self.video is self.sheet is self.rerun is None:
            raise ValueError("video is not given: give --video, --sheet or --rerun, or several of them")
        check_file("video", self.video, (".mp4",))
        check_file("sheet", self.sheet, (".png",))
        check_file("rerun", self.rerun, (".rrd",))
        if self.rerun is not None:
            import robopolicy.viz.recording  # noqa: F401 (what is not installed is told before any work is done)
        check_size(self.size)
        if not (math.isfinite(self.slow) and 1.0 <= self.slow <= SLOWEST):
            raise ValueError(f"slow is {self.slow}: it must be a number from 1 to {SLOWEST:g}")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be 0 or more")
        if self.task is not None:
            check_task(self.task, tuple(TASKS))

    def _task(self) -> str:
        """The task that is asked for, or that the first run is for; all runs must be for it."""
        from robopolicy.cli.runs import BASELINES, find_run, task_of
        from robopolicy.training.checkpoint import RunFolder

        tasks = {
            name: task_of(name, RunFolder(find_run(name)[0]).config())
            for name in self.policies
            if name not in BASELINES
        }
        task = self.task or next(iter(tasks.values()), STONES)
        for name, its in tasks.items():
            if its != task:
                raise ValueError(f"task is {task!r}: {name!r} was trained on {its!r}")
        return task


def check_size(size: tuple[int, int]) -> None:
    """Raise ValueError for pictures that cannot be filmed."""
    if any(side % 2 or not LEAST_SIDE <= side <= MOST_SIDE for side in size):
        raise ValueError(f"size is {size}: both sides must be even, and {LEAST_SIDE} to {MOST_SIDE}")


def _words(result: dict[str, Any], files: list[str]) -> str:
    lines = []
    for episode in result["episodes"]:
        outcomes = TASKS[result["task"]].outcomes
        told = ", ".join(outcome.said.format(episode[outcome.name]) for outcome in outcomes)
        lines.append(
            f"{episode['policy']} on seed {result['seed']}: {told}, return {episode['return']:.2f}, "
            f"ended by {episode['cause']}"
        )
    return "\n".join([*lines, *files])
