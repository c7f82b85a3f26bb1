"""A training run in progress: locked, resumed, logged, saved and stopped.

Both trainers use it. After each generation or step, a trainer calls `Loop.complete`, which logs, then saves,
then reports. A resumed run drops the log beyond its checkpoint, and repeats that part to the same weights.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robopolicy.training.checkpoint import Arrays, CheckpointError, RunFolder
from robopolicy.training.metrics import MetricsLog, Record, Sink, read
from robopolicy.training.progress import Limits
from robopolicy.training.resume import copy_log, note_distance, note_limits, resume_point

PROGRESS = "progress/"
SECONDS = PROGRESS + "seconds"
REQUESTS = (signal.SIGINT, signal.SIGTERM)  # schedulers of clusters and service managers send SIGTERM


class Schedule(NamedTuple):
    """The length of a run, and its checkpoints.

    Attributes:
      counter: name of the number in its records, `generation` or `step`.
      total: the last number.
      checkpoint_every: distance between two checkpoints; a run always saves its last state.
      keep_every: checkpoints at its multiples stay for good; 0 for none.
      limits: what ends it, if a resumed run may change that.
    """

    counter: str
    total: int
    checkpoint_every: int
    keep_every: int = 0
    limits: Limits | None = None


@dataclass
class Loop:
    """A run in progress; `running` makes it.

    Attributes:
      run, schedule, on_record: see `running`.
      done: the generation or step after which it continues, 0 at the beginning.
      began: the start of the run, if it had not stopped since (s, of the monotonic clock).
      metrics: its log.
      stopped: returns whether there was a request to stop.
    """

    run: RunFolder
    schedule: Schedule
    on_record: Callable[[Record], None] | None
    done: int
    began: float
    metrics: MetricsLog
    stopped: Callable[[], bool]

    @property
    def seconds(self) -> float:
        """Wall time of the run (s), over all its resumed parts."""
        return time.monotonic() - self.began

    def ends_with(self, number: int) -> bool:
        """Whether generation or step `number` is the last one, by the schedule or after a request to stop."""
        return number == self.schedule.total or self.stopped()

    def save(self, number: int, arrays: Arrays) -> None:
        """Save `arrays` and the wall time so far as the checkpoint after `number`."""
        arrays = {**arrays, SECONDS: np.asarray(self.seconds)}
        self.run.save(number, arrays, keep_every=self.schedule.keep_every)

    def complete(
        self, number: int, record: Record | None, arrays: Callable[[], Arrays], *, ended: bool = False
    ) -> None:
        """Log `record`, save `arrays()` if a checkpoint is due or the run has `ended`, report `record`."""
        if record is not None:
            self.metrics.add(record)
        if ended or (number and number % self.schedule.checkpoint_every == 0):
            self.save(number, arrays())
        if record is not None and self.on_record is not None:
            self.on_record(record)


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
    """Lock a run, restore it, open its log, and write an error that ends it to `failure.txt`.

    The first Ctrl-C or SIGTERM is a request to stop, see `Loop.ends_with`; a second one ends the run at once.

    Args:
      run: a folder that `RunFolder.create` has made.
      schedule: the length of the run, and its checkpoints.
      resume: continue after the latest checkpoint, or from the beginning without one; see
        `resume.resume_point`.
      restore: receives the arrays of that checkpoint. If they belong to another policy or config, it raises
        CheckpointError, KeyError or ValueError, and the log stays as it is.
      on_record: called with every record that `Loop.complete` has logged and saved.
      sinks: further logs.

    Raises CheckpointError if another process trains the run, or if the checkpoint is damaged, foreign, or
    missing although the log goes beyond it.
    """
    with ExitStack() as stack:
        stack.enter_context(run.locked())
        stack.enter_context(run.failure_saved())
        done, seconds = resume_point(run, schedule.counter) if resume else 0, 0.0
        if done:
            seconds = _restored_seconds(run.load(done)[1], restore)
        elif resume and read(run.metrics_path, schedule.counter):
            copy_log(run)
        note_distance(run, schedule.checkpoint_every)
        if resume and schedule.limits is not None:
            note_limits(run, schedule.limits)
        log = MetricsLog(run.path, after=done or -1, sinks=sinks, counter=schedule.counter)
        stack.enter_context(closing(log))
        stopped = stack.enter_context(asked_to_stop())
        yield Loop(run, schedule, on_record, done, time.monotonic() - seconds, log, stopped)


def _restored_seconds(arrays: Arrays, restore: Callable[[Arrays], None]) -> float:
    """Restore a checkpoint; returns the wall time of the run before it (s)."""
    try:
        restore(arrays)
        return float(arrays[SECONDS])
    except CheckpointError:
        raise
    except KeyError as error:
        raise CheckpointError(f"the checkpoint holds no {error}: another version made it") from error
    except ValueError as error:
        raise CheckpointError(f"the state of the checkpoint is another one: {error}") from error


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C or SIGTERM a request; the yielded function returns whether there was one.

    The second one has its usual effect.
    """
    asked = False
    before = {request: signal.getsignal(request) for request in REQUESTS}

    def restore() -> None:
        for request, handler in before.items():
            signal.signal(request, handler)

    def ask(signum: int, frame: object) -> None:
        nonlocal asked
        asked = True
        restore()

    try:
        for request in REQUESTS:
            signal.signal(request, ask)
    except ValueError:  # only the main thread receives signals
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        restore()
