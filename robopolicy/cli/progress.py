"""Live progress on stderr: a bar on a terminal, one line a generation anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robopolicy.envs.task import Outcome
from robopolicy.experiments.hooks import Hooks

Record = dict[str, Any]


def _bar(console: Console, unit: str, total: int | None) -> Progress:
    """A bar that counts `unit`, where there is a terminal to draw it on."""
    end = "" if total is None else "/{task.total}"
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{{task.completed:.1f}}{end} {unit}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


class Lines:
    """Lines on stderr, which a bar does not break."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)


class Barred(Lines):
    """A bar that fills up to `total` while the context is open, under whatever is said."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        super().__init__()
        self._what, self._total, self._unit = what, total, unit
        self._bar = _bar(self._console, unit, total)

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class CountingProgress(Barred):
    """A bar that counts, on a terminal; one line when the work begins anywhere else."""

    _begun = False

    def begin(self, total: int | None = None) -> None:
        """The input is checked and the work begins; further calls do nothing."""
        if self._begun:
            return
        self._begun, self._total = True, total or self._total
        self._bar.update(self._task, total=self._total)
        if not self._console.is_terminal:
            self.say(self._what if self._total is None else f"{self._what} {self._total} {self._unit}")

    def advance(self) -> None:
        """One more."""
        self._bar.advance(self._task)


class TrainingProgress(Barred):
    """Told of episodes and generations, it shows returns, speed and the time that is left."""

    def __init__(self, config: Any, title: str, goal: str, outcomes: Sequence[Outcome]) -> None:
        super().__init__("training", config.generations, "generations")
        self._population, self._episodes = config.population, config.episodes
        self._expected = config.population * config.episodes_on(0)
        self._title, self._goal, self._outcomes = title, goal, outcomes
        self._began = time.monotonic()
        self._generations = 0
        self._shares: list[float] = []

    def hooks(self) -> Hooks:
        """What a training calls."""
        return Hooks(self._begin, self._resumed, self.generation, self.episode)

    def _begin(self, words: str) -> None:
        each = ", then ".join(str(self._population * count) for count in self._episodes)
        self.say(f"Training {self._title}: {self._total} generations of {each} episodes")
        self.say(words)

    def _resumed(self, number: int) -> None:
        self.say(f"resuming at generation {number} of {self._total}")

    def episode(self) -> None:
        """One more episode is in."""
        self._bar.advance(self._task, 1.0 / self._expected)

    def generation(self, record: Record) -> None:
        """One more generation is done."""
        number = record["generation"]
        if number:
            self._generations += 1
            self._shares.append(record["share_in_episodes"])
            self._expected = record["episodes"]
            self.say(self._line(record))
        if "held_out/return" in record:
            told = [f"return {record['held_out/return']:.2f}"]
            told += [o.said.format(record[f"held_out/{o.name}"]) for o in self._outcomes]
            told.append(f"success {record['held_out/success']:.0%}")
            self.say(f"  on held-out {self._goal}: {', '.join(told)}")
        self._bar.update(self._task, completed=number)

    def done(self, record: Record | None, go_on: str) -> None:
        """The training has ended, with no record where nothing was left; `go_on` is the command to resume."""
        if record is None:
            self.say("nothing left to do: the run is over")
            return
        if record["ended_by"]:
            self.say(f"ended early: {record['ended_by']}")
        elif record["generation"] < self._total:
            self.say(f"stopped after generation {record['generation']}; go on with: {go_on}")
        if self._shares:
            share = sum(self._shares) / len(self._shares)
            self.say(f"{share:.0%} of the workers' time went into episodes")

    def _line(self, record: Record) -> str:
        per_generation = (time.monotonic() - self._began) / self._generations
        left = per_generation * (self._total - record["generation"])
        told = "".join(f"{o.said.format(record[o.name])}  " for o in self._outcomes)
        return (
            f"generation {record['generation']:3d}/{self._total} ({record['environment']})  "
            f"return mean {record['return_mean']:6.2f}  best {record['return_best']:6.2f}  "
            f"{told}{record['episodes_per_second']:.1f} episodes/s  "
            f"left {_clock(left)}"
        )


class RecordingProgress(Lines):
    """Told of demonstrations, it shows how they went and the time that is left."""

    def __init__(self, wanted: int, task: str, said: str) -> None:
        """said: the format of a demonstration's score."""
        super().__init__()
        self._wanted, self._task, self._said = wanted, task, said
        self._began = time.monotonic()
        self._before: int | None = None

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """The input is checked and the work begins."""
        self.say(f"Recording {self._wanted} demonstrations of {self._task}")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is KeyboardInterrupt:
            self.say("what is complete is kept: the same command goes on with it")

    def episode(self, recorded: Any, kept: int) -> None:
        """One more is in, and `kept` are kept so far."""
        if self._before is None:
            self._before = kept - 1
        new = max(kept - self._before, 1)
        left = (time.monotonic() - self._began) / new * (self._wanted - kept)
        self.say(
            f"{kept:4d}/{self._wanted}  seed {recorded.seed}  {recorded.steps} steps  "
            f"{self._said.format(recorded.score)}  left {_clock(left)}"
        )


class CloningProgress(Barred):
    """Told of steps and records, it shows losses, speed and the time that is left."""

    def __init__(self, config: Any, title: str) -> None:
        super().__init__("training", config.steps, "steps")
        self._config, self._title = config, title
        self._waiting: list[float] = []

    def hooks(self) -> Hooks:
        """What a training calls."""
        return Hooks(self._begin, self._resumed, self.record, self.step)

    def _begin(self, words: str) -> None:
        self.say(f"Cloning with {self._title}: {self._config.steps} steps of {self._config.batch} frames")
        self.say(words)

    def _resumed(self, number: int) -> None:
        self.say(f"resuming at step {number} of {self._total}")

    def step(self) -> None:
        """One more step is done."""
        self._bar.advance(self._task)

    def record(self, record: Record) -> None:
        """What was measured since the record before."""
        self._waiting.append(record["waiting_share"])
        frames = (self._config.steps - record["step"]) * self._config.batch
        left = frames / max(record["images_per_second"], 1e-9)
        words = [
            f"step {record['step']:5d}/{self._config.steps}  loss {record.get('loss', float('nan')):7.3f}",
            f"{record['images_per_second']:.0f} images/s",
            f"left {_clock(left)}",
        ]
        if {"validation/loss", "validation/action_error"} <= record.keys():
            validated = f"validation {record['validation/loss']:7.3f}, actions off by"
            words.insert(1, f"{validated} {record['validation/action_error']:.3f}")
        self.say("  ".join(words))
        if "rollout/return" in record:
            outcomes = [
                f"{n.removeprefix('rollout/')} {v:.2f}" for n, v in record.items() if n.startswith("rollout/")
            ]
            self.say(f"  in the simulator: {', '.join(outcomes)}")

    def done(self, record: Record | None, go_on: str) -> None:
        """The training has ended, with no record where nothing was left; `go_on` is the command to resume."""
        if record is None:
            self.say("nothing left to do: the run is over")
            return
        if record["step"] < self._config.steps:
            self.say(f"stopped after step {record['step']}; go on with: {go_on}")
        if self._waiting:
            share = sum(self._waiting) / len(self._waiting)
            self.say(f"{share:.1%} of the time went into waiting for demonstrations")
