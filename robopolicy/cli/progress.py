"""Progress on stderr: a bar on a terminal, and lines of text."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from robopolicy.envs.task import Outcome
from robopolicy.experiments.hooks import Hooks
from robopolicy.naming import counted

if TYPE_CHECKING:  # these modules import JAX
    from robopolicy.training.bc import BCConfig
    from robopolicy.training.demonstration import Recorded
    from robopolicy.training.es import ESConfig

Record = dict[str, Any]
QUIET = 30.0  # s after which a step prints a line where there is no bar


class Lines:
    """Lines of text on stderr, above a bar if there is one."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr)

    def say(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)


class Barred(Lines):
    """A bar on a terminal that counts `unit` up to `total` while the context is open."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        super().__init__()
        self._what, self._total, self._unit = what, total, unit
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{{task.completed:.1f}}{'' if total is None else '/{task.total}'} {unit}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        self._task = self._bar.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class CountingProgress(Barred):
    """A bar on a terminal; elsewhere one line when the work begins."""

    _begun = False

    def begin(self, total: int | None = None) -> None:
        """The input is checked and the work begins; further calls do nothing."""
        if self._begun:
            return
        self._begun, self._total = True, total or self._total
        self._bar.update(self._task, total=self._total)
        if not self._console.is_terminal:
            self.say(
                self._what if self._total is None else f"{self._what} {counted(self._total, self._unit)}"
            )

    def advance(self) -> None:
        """Count one more."""
        self._bar.advance(self._task)


class RunProgress(Barred):
    """The progress of a training: its records, its speed and the time left.

    `unit` is what its records count: generation or step.
    """

    _begun = False

    def __init__(self, unit: str, total: int, title: str, sizes: str, share: str) -> None:
        super().__init__("training", total, f"{unit}s")
        self._counter, self._limit = unit, total
        self._title, self._sizes, self._share = title, sizes, share
        self._shares: list[float] = []

    def hooks(self) -> Hooks:
        """The functions that a training calls."""
        return Hooks(self._begin, self._resumed, self.record, self.step)

    def _begin(self, text: str) -> None:
        if not self._begun:
            self.say(f"{self._title}: {counted(self._limit, self._unit)} of {self._sizes}")
        self._begun = True
        self.say(text)

    def _resumed(self, number: int) -> None:
        self.say(f"resuming at {self._counter} {number} of {self._limit}")
        self._bar.reset(self._task, completed=number - 1)  # no sample of its speed

    def record(self, record: Record) -> None:
        """Show a record of the log."""
        raise NotImplementedError

    def step(self) -> None:
        """Advance the bar by a step, or by an episode."""
        self._bar.advance(self._task)

    def done(self, record: Record | None, command: str, following: str) -> bool:
        """Show how the training ended; `command` continues it, and `following` is of use after its end.

        `record` is None if the run was complete. Returns whether it is complete now.
        """
        if record is None:
            self.say("nothing left to do: the run is over")
            return True
        number = record[self._counter]
        complete = bool(record.get("ended_by")) or number == self._limit
        if record.get("ended_by"):
            self.say(f"ended early: {record['ended_by']}")
        elif not complete:
            self.say(f"stopped after {self._counter} {number}; go on with: {command}")
        if self._shares:
            self.say(self._share.format(sum(self._shares) / len(self._shares)))
        if complete:
            self.say(f"next: {following}")
        return complete


class TrainingProgress(RunProgress):
    """The progress of an evolution strategy."""

    def __init__(self, config: ESConfig, title: str, goal: str, outcomes: Sequence[Outcome]) -> None:
        each = ", then ".join(str(config.population * count) for count in config.episodes or ())
        share = "{:.0%} of the workers' time went into episodes"
        super().__init__("generation", config.generations, f"Training {title}", f"{each} episodes", share)
        self._expected = config.population * config.episodes_on(0)
        self._goal, self._outcomes = goal, outcomes
        self._began = time.monotonic()
        self._generations = 0

    def step(self) -> None:
        """See `RunProgress`."""
        self._bar.advance(self._task, 1.0 / self._expected)

    def record(self, record: Record) -> None:
        """See `RunProgress`."""
        number = record["generation"]
        if number:
            self._generations += 1
            self._shares.append(record["share_in_episodes"])
            self._expected = record["episodes"]
            self.say(self._line(record))
        if "held_out/return" in record:
            results = [f"return {record['held_out/return']:.2f}"]
            results += [o.phrase.format(record[f"held_out/{o.name}"]) for o in self._outcomes]
            results.append(f"success {record['held_out/success']:.0%}")
            self.say(f"  on held-out {self._goal}: {', '.join(results)}")
        self._bar.update(self._task, completed=number)

    def _line(self, record: Record) -> str:
        per_generation = (time.monotonic() - self._began) / self._generations
        left = per_generation * (self._limit - record["generation"])
        outcomes = "".join(f"{o.phrase.format(record[o.name])}  " for o in self._outcomes)
        return (
            f"generation {record['generation']:3d}/{self._limit} ({record['environment']})  "
            f"return mean {record['return_mean']:6.2f}  best {record['return_best']:6.2f}  "
            f"{outcomes}{record['episodes_per_second']:.1f} episodes/s  "
            f"left {_clock(left)}"
        )


class RecordingProgress(Lines):
    """The progress of recording demonstrations; `score` is the format of a demonstration's score."""

    def __init__(self, total: int, task: str, score: str) -> None:
        super().__init__()
        self._total, self._task, self._score = total, task, score
        self._began = time.monotonic()
        self._before: int | None = None

    def __enter__(self) -> Self:
        return self

    def begin(self) -> None:
        """The input is checked and the work begins."""
        self.say(f"Recording {counted(self._total, 'demonstrations')} of {self._task}")

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is KeyboardInterrupt:
            self.say("complete episodes are saved: the same command continues")

    def episode(self, recorded: Recorded, count: int) -> None:
        """Show an episode; `count` episodes are complete."""
        if self._before is None:
            self._before = count - 1
        new = max(count - self._before, 1)
        left = (time.monotonic() - self._began) / new * (self._total - count)
        self.say(
            f"{count:4d}/{self._total}  seed {recorded.seed}  {recorded.steps} steps  "
            f"{self._score.format(recorded.score)}  left {_clock(left)}"
            f"{recorded.unsolved and f'  kept out: {recorded.unsolved}'}"
        )


class CloningProgress(RunProgress):
    """The progress of behaviour cloning."""

    def __init__(self, config: BCConfig, title: str) -> None:
        share = "{:.1%} of the time went into waiting for demonstrations"
        super().__init__(
            "step", config.steps, f"Cloning with {title}", counted(config.batch, "frames"), share
        )
        self._batch = config.batch
        self._step = 0
        self._said: tuple[int, float] | None = None  # step and time of the last line, or of the first step

    def _resumed(self, number: int) -> None:
        super()._resumed(number)
        self._step = number - 1

    def step(self) -> None:
        """See `RunProgress`. Without a bar, a line shows that a long stretch between records goes on."""
        super().step()
        self._step += 1
        before, then = self._said = self._said or (self._step, time.monotonic())
        if not self._console.is_terminal and time.monotonic() - then > QUIET:
            rate = (self._step - before) * self._batch / (time.monotonic() - then)
            self._tell(f"step {self._step:5d}/{self._limit}", self._step, rate)

    def _tell(self, words: str, step: int, rate: float) -> None:
        """Print `words`, with `rate` (images/s) and the time that the steps after `step` will take."""
        left = (self._limit - step) * self._batch / max(rate, 1e-9)
        self.say(f"{words}  {rate:.0f} images/s  left {_clock(left)}")
        self._said = step, time.monotonic()

    def record(self, record: Record) -> None:
        """See `RunProgress`."""
        self._shares.append(record["waiting_share"])
        words = f"step {record['step']:5d}/{self._limit}  loss {record.get('loss', float('nan')):7.3f}"
        if {"validation/loss", "validation/action_error"} <= record.keys():
            words += f"  validation {record['validation/loss']:7.3f}, actions off by"
            words += f" {record['validation/action_error']:.3f}"
        self._tell(words, record["step"], record["images_per_second"])
        if "rollout/return" in record:
            outcomes = [
                f"{n.removeprefix('rollout/')} {v:.2f}" for n, v in record.items() if n.startswith("rollout/")
            ]
            self.say(f"  in the simulator: {', '.join(outcomes)}")
