"""Behaviour cloning: learns a policy from demonstrations, by the loss of its head."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from robopolicy.naming import one_of
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.policies.energy import MOST
from robopolicy.policies.older_formats import current_path
from robopolicy.policies.vision_performer import Learner
from robopolicy.settings import check_count, check_number
from robopolicy.training.batches import Batches, Mirror, Prefetcher, Reach, Split
from robopolicy.training.capacity import check_settings, cores
from robopolicy.training.checkpoint import BEST, FEATURES, MEAN, RunFolder, check_features, under
from robopolicy.training.descent import Descent, HeldOut, Keys, Ready
from robopolicy.training.frames import Frames
from robopolicy.training.loop import PROGRESS, Schedule, running
from robopolicy.training.metrics import ROLLOUT_RETURN, UNPLANNED, VALIDATION_LOSS, Record, Sink
from robopolicy.training.rollout import MOST_HELD_OUT

COUNTER = "step"  # the number of a record
STATE = "state/"
NONFINITE = ("stop", "skip")
READERS = 8  # threads that read batches for an accelerator, at most
SKIPS = 20  # consecutive steps that are not finite, which end a run that skips them
LARGEST = 1e6  # of settings that multiply parameters: float32 holds the product
LOWEST = {
    **dict.fromkeys(("steps", "batch", "accumulate", "negatives", "validate_every", "checkpoint_every"), 1),
    **dict.fromkeys(("warmup", "rollout_every"), 0),
}


@dataclass(frozen=True)
class BCConfig:
    """Settings of a run.

    Attributes:
      steps: number of optimiser steps.
      batch: demonstrations per step.
      accumulate: number of parts of a batch whose gradients are summed, for batches beyond memory.
      learning_rate: highest learning rate of AdamW, after the warm-up; a cosine reduces it to a hundredth.
      warmup: steps of the warm-up, at most all but the last one.
      weight_decay: weight decay of AdamW, on arrays of two dimensions or more.
      clip: largest norm of a gradient.
      ema: decay of the running mean of parameters, which is the policy to evaluate and ship.
      negatives: number of uniform actions that the loss contrasts with the demonstrated one (per dimension,
        if the head is autoregressive; a regression has none).
      mirror: mirror half of the frames.
      jitter: relative variation of the brightness of each colour channel.
      least_action: frames whose intended action has no number as large as this, by absolute value, are not
        learned from. A demonstrator that waits has such frames, which teach a policy to stand still.
        In a chunk, the first action counts.
      validation: share of the episodes for validation.
      validate_every: steps between two validations.
      rollout_every: steps between two evaluations in the simulator, besides the one at the end; 0 for none.
      rollouts: episodes per evaluation in the simulator, at most 1,000; 0 for no evaluation at all.
      nonfinite: the reaction to a loss or a gradient that is not finite. The step is undone in any case; then
        `stop` ends the run, and `skip` continues with the next batch.
      seed: of all random draws.
      checkpoint_every: steps between two checkpoints; a run always saves its last state.

    Raises ValueError for a setting of another type or out of range.
    """

    steps: int = 2000
    batch: int = 32
    accumulate: int = 1
    learning_rate: float = 1e-3
    warmup: int = 200
    weight_decay: float = 1e-4
    clip: float = 1.0
    ema: float = 0.999
    negatives: int = 64
    mirror: bool = True
    jitter: float = 0.05
    least_action: float = 0.0
    validation: float = 0.05
    validate_every: int = 250
    rollout_every: int = 0
    rollouts: int = 0
    nonfinite: str = "stop"
    seed: int = 0
    checkpoint_every: int = 250

    def __post_init__(self) -> None:
        check_settings(self, LOWEST)
        check_count("rollouts", self.rollouts, 0, MOST_HELD_OUT)
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate is {self.accumulate}: it must divide the batch of {self.batch}")
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) <= LARGEST:
                raise ValueError(
                    f"{name} is {getattr(self, name)}: it must be a number above 0, and at most {LARGEST:g}"
                )
        if self.negatives > MOST:
            raise ValueError(f"negatives is {self.negatives}: it must be at most {MOST}")
        check_number("weight_decay", self.weight_decay, 0.0, LARGEST)
        for name in ("ema", "jitter", "least_action", "validation"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be from 0 to less than 1")
        one_of("nonfinite", self.nonfinite, NONFINITE)

    def plays_at(self, step: int) -> bool:
        """Whether an evaluation in the simulator follows this step."""
        regular = self.rollout_every and step % self.rollout_every == 0
        return bool(self.rollouts and (regular or step == self.steps))

    def validates_at(self, step: int) -> bool:
        """Whether a validation follows this step in any run."""
        return step % self.validate_every == 0 or step == self.steps or self.plays_at(step)

    def optimiser(self) -> optax.GradientTransformation:
        """AdamW with warm-up, cosine and clipping."""
        rate = optax.warmup_cosine_decay_schedule(
            0.0, self.learning_rate, min(self.warmup, self.steps - 1), self.steps, self.learning_rate / 100
        )
        adamw = optax.adamw(
            rate, weight_decay=self.weight_decay, mask=lambda tree: jax.tree.map(lambda x: x.ndim > 1, tree)
        )
        return optax.chain(optax.clip_by_global_norm(self.clip), adamw)


# Settings that a resumed run may change: they do not change what it learns.
MAY_CHANGE = ("validate_every", "rollout_every", "rollouts", "nonfinite", "checkpoint_every")


class Rollouts(NamedTuple):
    """Results of a policy in the simulator: the mean return, and outcomes by name."""

    returns: float
    outcomes: Mapping[str, float]

    def record(self) -> Record:
        """The entries of the log."""
        own = {ROLLOUT_RETURN: self.returns}
        outcomes = {f"rollout/{name}": value for name, value in self.outcomes.items()}
        return {**own, **outcomes, **own}  # no outcome replaces the return


class Progress(NamedTuple):
    """The number of skipped steps, and the best results so far."""

    skipped: int = 0
    best_return: float = -np.inf
    best_loss: float = np.inf

    def is_best(self, record: Record) -> bool:
        """Whether this is the best result: by return, or by loss if there has been no return."""
        if ROLLOUT_RETURN in record:
            return bool(record[ROLLOUT_RETURN] > self.best_return)
        return self.best_return == -np.inf and record.get(VALIDATION_LOSS, np.inf) < self.best_loss

    def after(self, record: Record) -> Progress:
        """With the results of a record."""
        return self._replace(
            best_return=max(self.best_return, record.get(ROLLOUT_RETURN, -np.inf)),
            best_loss=min(self.best_loss, record.get(VALIDATION_LOSS, np.inf)),
        )


def train(
    config: BCConfig,
    *,
    run: RunFolder,
    learner: Learner,
    features: Any,
    frames: Frames,
    split: Split,
    mirror: Mirror | None = None,
    parameters: NDArray[np.float32] | None = None,
    rollout: Callable[[NDArray[np.float32]], Rollouts] | None = None,
    resume: bool = False,
    on_record: Callable[[Record], None] | None = None,
    on_step: Callable[[], None] | None = None,
    sinks: Sequence[Sink] = (),
) -> Record | None:
    """Train for `config.steps` and save to `run`; returns the last record, None if the run was complete.

    Args:
      config: settings.
      run: a folder that `RunFolder.create` has made.
      learner: the policy and its loss.
      features: its frozen features.
      frames: the demonstrations.
      split: the frames for training and for validation; `batches.moving` has left out those that
        `config.least_action` excludes.
      mirror: the mirror image of the task, for config.mirror.
      parameters: flat [P], to begin with; drawn by default.
      rollout: flat parameters [P] -> results in the simulator.
      resume: continue after the latest checkpoint, bit for bit as a run without a stop, or from the beginning
        without a checkpoint; see `resume.resume_point`.
      on_record: called with every record, after the checkpoint if one is due.
      on_step: called after each step.
      sinks: further logs.

    The best parameters, in every checkpoint, are those with the highest return in the simulator, or, without
    rollouts, those with the lowest loss on validation frames. Ctrl-C or SIGTERM saves and ends the run after
    the step in progress; a second one ends it at once.

    Raises ValueError for a missing mirror or a batch that is larger than the data; FloatingPointError for a
    loss or a gradient that is not finite, as `config.nonfinite` says; CheckpointError for a checkpoint of
    another policy, and as `loop.running` does.
    """
    if config.mirror and mirror is None:
        raise ValueError("mirror is True: this task has no mirror")
    check_batch(config, split)
    cloning = _Cloning(config, learner, features, parameters)
    reach = Reach(learner.config.history, learner.config.chunk)
    mirrored = mirror if config.mirror else None
    batches = Batches(frames, split.train, config.batch, config.seed, mirrored, config.jitter, reach)

    def read(number: int) -> Ready:
        return cloning.descent.ready(batches.at(number))

    held_out = HeldOut(frames, split.validation, config.batch // config.accumulate, reach)
    schedule = Schedule(COUNTER, config.steps, config.checkpoint_every)
    last: Record | None = None
    with (
        running(
            run, schedule, resume=resume, restore=cloning.restore, on_record=on_record, sinks=sinks
        ) as loop,
        closing(cloning.descent),
        closing(Prefetcher(read, loop.done, config.steps, _readers())) as prefetcher,
    ):
        since = _Since(prefetcher)
        for step, ready in enumerate(prefetcher, loop.done + 1):
            plays = rollout is not None and config.plays_at(step)
            # Copies, since the step reuses the memory of the state.
            before = (
                {path: np.array(a) for path, a in cloning.arrays().items()} if plays and step > 1 else None
            )
            try:
                complaint = cloning.advance(step, ready, since)
            except FloatingPointError:
                if config.nonfinite == "stop":
                    loop.save(step - 1, cloning.arrays())
                raise
            ended = loop.ends_with(step)
            if complaint:
                loop.metrics.add({"step": step, "not_finite": complaint})
            if on_step is not None:
                on_step()
            planned, record = config.validates_at(step), None
            if ended or planned:
                record = {"step": step, **since.record(config.batch), "skipped": cloning.progress.skipped}
                record |= held_out.record(cloning.descent, cloning.state.ema)
                if rollout is not None and plays:
                    try:
                        record |= rollout(cloning.mean).record()
                    except BaseException:
                        if before is not None:
                            loop.save(step - 1, before)  # a resumed run plays again
                        raise
                # An extra validation after a stop must not change a run that continues.
                if planned:
                    cloning.compare(record)
                else:
                    record[UNPLANNED] = True
                record["seconds"] = loop.seconds
                last, since = record, _Since(prefetcher)
            loop.complete(step, record, cloning.arrays, ended=ended)
            if ended:
                break
    return last


def check_batch(config: BCConfig, split: Split) -> None:
    """Raise ValueError for a batch of more frames than there are to train on."""
    count = len(split.train)
    if config.batch > count:
        least = f" with a least_action of {config.least_action}" if config.least_action else ""
        raise ValueError(f"batch is {config.batch}: there are {count} frames to train on{least}")


def _readers() -> int:
    """Threads that read batches: one where the training itself needs the cores."""
    return 1 if jax.default_backend() == "cpu" else min(READERS, cores())


class _Cloning:
    """A descent with its progress, and the best parameters so far."""

    def __init__(
        self, config: BCConfig, learner: Learner, features: Any, parameters: NDArray[np.float32] | None
    ) -> None:
        keys = Keys.of(config.seed)
        settings = {name: getattr(config, name) for name in ("batch", "accumulate", "negatives", "ema")}
        self.descent = Descent(learner, features, config.optimiser(), keys=keys, **settings)
        if parameters is None:
            begun = self.descent.begin(keys.parameters)
        else:
            begun = self.descent.begin_from(unflatten(learner.policy)(jnp.asarray(parameters)))
        self.state = self.descent.placed(begun)
        self.progress = Progress()
        self._best, self._features = self.mean, by_path(features)
        self._config, self._attention, self._in_a_row = config, learner.config.label, 0

    @property
    def mean(self) -> NDArray[np.float32]:
        """The running mean of parameters, flat [P]."""
        return np.asarray(flatten(self.state.ema))

    def advance(self, step: int, ready: Ready, since: _Since) -> str:
        """Descend by a batch. Returns "", or the reason why the step was undone.

        Raises FloatingPointError if that ends the run.
        """
        self.state, results = self.descent.step(self.state, ready, step)
        results = jax.device_get(results)
        if results["finite"]:
            self._in_a_row = 0
            since.losses.append(float(results["loss"]))
            since.norms.append(float(results["gradient_norm"]))
            return ""
        self._in_a_row += 1
        complaint = f"step {step}: {self.descent.complaint(self.state.parameters, ready.batch, step)}"
        message = f"{complaint}; attention is {self._attention}"
        if self._config.nonfinite == "stop":
            raise FloatingPointError(f"{message}; the policy is that of step {step - 1}")
        if self._in_a_row == SKIPS:  # so many batches in a row are not damaged by chance
            raise FloatingPointError(f"{message}; it is the last of {SKIPS} in a row")
        self.progress = self.progress._replace(skipped=self.progress.skipped + 1)
        return complaint

    def compare(self, record: Record) -> None:
        """Keep the current parameters if `record` is the best result so far."""
        if self.progress.is_best(record):
            self._best = self.mean
        self.progress = self.progress.after(record)

    def arrays(self) -> Arrays:
        """The arrays of a checkpoint."""
        return {
            MEAN: self.mean,
            BEST: self._best if np.isfinite(self.progress[1:]).any() else self.mean,
            **{FEATURES + path: array for path, array in self._features.items()},
            **{STATE + path: array for path, array in by_path(self.state).items()},
            **{PROGRESS + name: np.asarray(value) for name, value in self.progress._asdict().items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """Return to a checkpoint; see `loop.running` for its errors."""
        expected = self.arrays()
        arrays = {current_path(path, expected): array for path, array in arrays.items()}
        check_features(arrays, self._features)
        self.progress = Progress(**{name: arrays[PROGRESS + name].item() for name in Progress._fields})
        self._best = np.asarray(arrays[BEST], np.float32)
        state = from_path(self.state, under(STATE, arrays))
        self.state = self.descent.placed(jax.tree.map(jnp.asarray, state))


class _Since:
    """Losses and norms of gradients since the last record."""

    def __init__(self, prefetcher: Prefetcher[Ready]) -> None:
        self._prefetcher, self._waited = prefetcher, prefetcher.waited
        self._began = time.monotonic()
        self.losses: list[float] = []
        self.norms: list[float] = []

    def record(self, batch: int) -> Record:
        seconds = time.monotonic() - self._began
        series = {"loss": self.losses, "gradient_norm": self.norms}
        return {
            **{name: float(np.mean(values)) for name, values in series.items() if values},
            "images_per_second": len(self.losses) * batch / seconds,
            "waiting_share": (self._prefetcher.waited - self._waited) / seconds,
        }
