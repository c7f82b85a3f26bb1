"""A training run in progress: one trainer a folder, resumed, logged, saved, stopped, its failure kept.

What both trainers have in common, besides what they learn. After each generation or step a trainer calls
`Loop.complete`, which logs, then saves, then reports. A resumed run drops what was logged beyond its
checkpoint, and repeats it to the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

import numpy as np

from robopolicy.training.checkpoint import Arrays, CheckpointError, RunFolder
from robopolicy.training.interrupt import asked_to_stop
from robopolicy.training.metrics import MetricsLog, Record, Sink
from robopolicy.training.resume import keep_log, note_distance, resume_point

PROGRESS = "progress/"
SECONDS = PROGRESS + "seconds"


class Schedule(NamedTuple):
    """What a run counts, how far it goes, and when it is saved.

    Attributes:
      counter: what its records count, `generation` or `step`.
      total: the last of them.
      checkpoint_every: how many lie between two checkpoints; the last one of a run is always saved.
      keep_every: the checkpoints at its multiples are kept for good; 0 for none.
    """

    counter: str
    total: int
    checkpoint_every: int
    keep_every: int = 0


class Loop:
    """A run in progress; `running` makes it.

    Attributes:
      done: the generation or step after which it goes on, 0 at the beginning.
    """

    def __init__(
        self,
        run: RunFolder,
        schedule: Schedule,
        done: int,
        seconds: float,
        log: MetricsLog,
        stopped: Callable[[], bool],
        on_record: Callable[[Record], None] | None,
    ) -> None:
        self.done = done
        self._run, self._schedule, self._log = run, schedule, log
        self._stopped, self._on_record = stopped, on_record
        self._earlier, self._began = seconds, time.monotonic()

    @property
    def seconds(self) -> float:
        """Wall time of the run, over all its resumed parts."""
        return self._earlier + time.monotonic() - self._began

    def ends_with(self, number: int) -> bool:
        """Whether generation or step `number` is the last, of all or because a stop was asked for."""
        return number == self._schedule.total or self._stopped()

    def log(self, record: Record) -> None:
        """Log a record, and do no more."""
        self._log.add(record)

    def save(self, number: int, arrays: Arrays) -> None:
        """Save `arrays` and the wall time so far as the checkpoint after `number`."""
        arrays = {**arrays, SECONDS: np.asarray(self.seconds)}
        self._run.save(number, arrays, keep_every=self._schedule.keep_every)

    def complete(
        self, number: int, record: Record | None, arrays: Callable[[], Arrays], *, ended: bool = False
    ) -> None:
        """Log `record`, save `arrays()` if a checkpoint is due or the run has `ended`, report `record`."""
        if record is not None:
            self._log.add(record)
        if ended or (number and number % self._schedule.checkpoint_every == 0):
            self.save(number, arrays())
        if record is not None and self._on_record is not None:
            self._on_record(record)


@contextmanager
def running(
    run: RunFolder,
    schedule: Schedule,
    *,
    resume: bool,
    restore: Callable[[Arrays], None],
    on_record: Callable[[Record], None] | None = None,
    sinks: Sequence[Sink] = (),
) -> Iterator[Loop]:
    """Hold a run, go to where it is resumed, open its log, and keep the words of an error that ends it.

    The first Ctrl-C or SIGTERM asks the run to stop, see `Loop.ends_with`; a second one ends it at once.

    Args:
      run: a folder that `RunFolder.create` has made.
      schedule: what it counts.
      resume: go on after the latest checkpoint, from the beginning where there is none; see
        `resume.resume_point`.
      restore: is given the arrays of that checkpoint, and raises CheckpointError where they belong to another
        policy or config. The log is left as it is then.
      on_record: is called with every record that `Loop.complete` has logged and saved.
      sinks: where records go besides the run folder.

    Raises CheckpointError where another process trains the run, or where the checkpoint to go on from is
    damaged, foreign, or missing although the log goes beyond it.
    """
    with ExitStack() as stack:
        stack.enter_context(run.held())
        stack.enter_context(run.failure_kept())
        done, seconds = resume_point(run, schedule.counter) if resume else 0, 0.0
        if done:
            _, arrays = run.load(done)
            restore(arrays)
            seconds = _seconds(arrays)
        elif resume:
            keep_log(run, schedule.counter)
        note_distance(run, schedule.checkpoint_every)
        log = MetricsLog(run.path, after=done or -1, sinks=sinks, counter=schedule.counter)
        stack.enter_context(closing(log))
        stopped = stack.enter_context(asked_to_stop())
        yield Loop(run, schedule, done, seconds, log, stopped, on_record)


def _seconds(arrays: Arrays) -> float:
    if SECONDS not in arrays:
        raise CheckpointError(f"the checkpoint holds no {SECONDS!r}: another version made it")
    return float(arrays[SECONDS])
