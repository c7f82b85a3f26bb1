"""Behaviour cloning: demonstrations in, a policy out, by the loss that its head brings along."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from robopolicy.naming import one_of
from robopolicy.policies.base import flatten
from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.policies.energy import MOST
from robopolicy.policies.vision_performer import Learner
from robopolicy.training.batches import Batches, Mirror, Prefetcher, Split
from robopolicy.training.checkpoint import BEST, FEATURES, MEAN, CheckpointError, RunFolder
from robopolicy.training.datasets import FrameCache
from robopolicy.training.descent import Descent, Keys, State
from robopolicy.training.held_out import HeldOut
from robopolicy.training.interrupt import asked_to_stop
from robopolicy.training.metrics import ROLLOUT_RETURN, VALIDATION_LOSS, MetricsLog, Record, Sink

STATE, PROGRESS = "state/", "progress/"
NONFINITE = ("stop", "skip")
SKIPS = 20  # steps in a row that are not finite, after which a run that skips them gives up
LARGEST = 1e6  # of settings that parameters are multiplied with: float32 holds what comes of it


@dataclass(frozen=True)
class BCConfig:
    """Settings of a run.

    Attributes:
      steps: optimiser steps in all.
      batch: demonstrations a step.
      accumulate: parts that a batch is cut into, whose gradients are added up: for batches beyond memory.
      learning_rate: the highest, of AdamW, after `warmup` steps (all but the last one, at most); a cosine
        takes it to a hundredth at the end.
      weight_decay: of AdamW, on matrices.
      clip: largest norm of a gradient.
      ema: decay of the running mean of parameters, which is what is evaluated and shipped.
      negatives: uniform actions that the demonstrated one must stand out from (for each dimension, where the
        head is autoregressive; a regression has none).
      mirror: whether half of the frames are shown in a mirror.
      jitter: share by which the brightness of each colour channel is varied.
      validation: share of the episodes that are set aside.
      validate_every: steps between two looks at them.
      rollout_every: steps between two evaluations in the simulator, besides the one at the end; 0 for none.
      rollouts: episodes of such an evaluation; 0 for none at all.
      nonfinite: what follows a loss or a gradient that is not finite. The step is undone in any case; `stop`
        ends the run there, `skip` goes on with the next batch.
      seed: fixes everything.
      checkpoint_every: steps between two checkpoints; the last one is always saved.
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
    validation: float = 0.05
    validate_every: int = 250
    rollout_every: int = 0
    rollouts: int = 0
    nonfinite: str = "stop"
    seed: int = 0
    checkpoint_every: int = 250

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulate", "negatives", "validate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        for name in ("warmup", "rollout_every", "rollouts"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate is {self.accumulate}: it must divide the batch of {self.batch}")
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) <= LARGEST:
                raise ValueError(
                    f"{name} is {getattr(self, name)}: it must be a number above 0, and at most {LARGEST:g}"
                )
        if self.negatives > MOST:
            raise ValueError(f"negatives is {self.negatives}: it must be at most {MOST}")
        if not 0.0 <= self.weight_decay <= LARGEST:
            raise ValueError(f"weight_decay is {self.weight_decay}: it must be from 0 to {LARGEST:g}")
        for name in ("ema", "jitter", "validation"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be from 0 to less than 1")
        one_of("nonfinite", self.nonfinite, NONFINITE)
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: it must be from 0 to {2**32 - 1}")

    def plays_at(self, step: int) -> bool:
        """Whether the policy is evaluated in the simulator after this step."""
        regular = self.rollout_every and step % self.rollout_every == 0
        return bool(self.rollouts and (regular or step == self.steps))

    def looks_at(self, step: int) -> bool:
        """Whether this step is followed by a look at the policy, however the run ends."""
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


# What may differ in a run that is resumed: how it is watched, and nothing of what it learns.
MAY_CHANGE = ("validate_every", "rollout_every", "rollouts", "nonfinite", "checkpoint_every")


class Rollouts(NamedTuple):
    """How a policy did in the simulator: the mean return, and outcomes by name."""

    returns: float
    outcomes: Mapping[str, float]

    def record(self) -> Record:
        """As the log has it."""
        named = {f"rollout/{name}": value for name, value in self.outcomes.items()}
        return {ROLLOUT_RETURN: self.returns, **named}


class Progress(NamedTuple):
    """What a checkpoint knows besides the state: steps skipped, the best so far, and seconds of wall time."""

    skipped: int = 0
    best_return: float = -np.inf
    best_loss: float = np.inf
    seconds: float = 0.0

    @property
    def compared(self) -> bool:
        """Whether anything has been looked at yet."""
        return bool(np.isfinite(self.best_return) or np.isfinite(self.best_loss))

    def is_best(self, record: Record) -> bool:
        """Whether this is the best so far: by return, and where there has been none, by loss."""
        if ROLLOUT_RETURN in record:
            return bool(record[ROLLOUT_RETURN] > self.best_return)
        return self.best_return == -np.inf and record.get(VALIDATION_LOSS, np.inf) < self.best_loss

    def after(self, record: Record) -> Progress:
        """With what a record adds."""
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
    cache: FrameCache,
    split: Split,
    mirror: Mirror | None = None,
    rollout: Callable[[NDArray[np.float32]], Rollouts] | None = None,
    resume: bool = False,
    on_record: Callable[[Record], None] | None = None,
    on_step: Callable[[], None] | None = None,
    sinks: Sequence[Sink] = (),
) -> Record | None:
    """Train for `config.steps`, saving to `run`; returns the last record, None if nothing was left to do.

    Args:
      config: settings.
      run: a folder that `RunFolder.create` has made.
      learner: the policy and its loss.
      features: its frozen features.
      cache: the demonstrations' frames.
      split: which of them are for training.
      mirror: the task in a mirror, for config.mirror.
      rollout: flat parameters [P] -> how they do in the simulator.
      resume: go on after the latest checkpoint, to the same bits as if there had been no stop.
      on_record, on_step: told of progress.
      sinks: where records go besides the run folder.

    The best parameters, in every checkpoint, are those with the highest return in the simulator, or where
    it is not asked, those with the lowest loss on frames set aside. Ctrl-C or SIGTERM ends the run, saved,
    after the step in progress; a second one ends it at once. Raises FloatingPointError where the loss is not
    finite and the config says to stop, or twenty times in a row, CheckpointError where a checkpoint to resume
    from has other shapes.
    """
    if config.mirror and mirror is None:
        raise ValueError("mirror is True: this task does not tell what it looks like in a mirror")
    if config.batch > len(split.train):
        raise ValueError(f"batch is {config.batch}: there are {len(split.train)} frames to train on")
    descent = Descent(
        learner,
        features,
        config.optimiser(),
        keys=Keys.of(config.seed),
        **{name: getattr(config, name) for name in ("batch", "accumulate", "negatives", "ema")},
    )
    batches = Batches(
        cache, split.train, config.batch, config.seed, mirror if config.mirror else None, config.jitter
    )
    held_out = HeldOut(cache, split.validation, config.batch // config.accumulate)
    state = descent.begin(Keys.of(config.seed).parameters)
    progress, done, best = Progress(), 0, np.asarray(flatten(state.ema))
    frozen = {FEATURES + path: array for path, array in by_path(features).items()}

    def save(step: int) -> None:
        mean = np.asarray(flatten(state.ema))
        arrays = {MEAN: mean, BEST: best if progress.compared else mean, **frozen}
        arrays |= {STATE + path: array for path, array in by_path(state).items()}
        arrays |= {PROGRESS + name: np.asarray(value) for name, value in progress._asdict().items()}
        run.save(step, arrays)

    with ExitStack() as stack:
        stack.enter_context(run.held())
        stack.enter_context(run.failure_kept())
        saved = resume and bool(run.generations())
        if saved:
            done, arrays = run.load()
            state, progress, best = _restored(arrays, state, frozen)
        log = MetricsLog(run.path, after=done if saved else -1, sinks=sinks, counter="step")
        stack.enter_context(closing(log))
        stopped = stack.enter_context(asked_to_stop())
        prefetcher = stack.enter_context(closing(Prefetcher(batches, done, config.steps)))
        state = descent.placed(state)
        earlier, began = progress.seconds, time.monotonic()
        since = _Since(prefetcher)
        in_a_row = 0
        record: Record | None = None
        for step, batch in enumerate(prefetcher, done + 1):
            state, told = descent.step(state, batch, step)
            ended = step == config.steps or stopped()
            if told["finite"]:
                in_a_row = 0
                since.add(float(told["loss"]), float(told["gradient_norm"]), config.batch)
            else:
                in_a_row += 1
                words = f"step {step}: {descent.complaint(state.parameters, batch, step)}"
                told_of = f"{words}; attention is {learner.attention}"
                if config.nonfinite == "stop":
                    save(step - 1)
                    raise FloatingPointError(f"{told_of}; the policy is that of step {step - 1}")
                if in_a_row == SKIPS:  # not for its data, then: what was saved last had finite steps after it
                    raise FloatingPointError(f"{told_of}; it is the last of {SKIPS} in a row")
                progress = progress._replace(skipped=progress.skipped + 1)
                log.add({"step": step, "not_finite": words})
            if on_step is not None:
                on_step()
            planned = config.looks_at(step)
            if ended or planned:
                record = {"step": step, **since.record(), "skipped": progress.skipped}
                record |= held_out.looked_at(descent, state.ema)
                if rollout is not None and config.plays_at(step):
                    try:
                        record |= rollout(np.asarray(flatten(state.ema))).record()
                    except BaseException:  # minutes in a simulator must not cost what was learnt before
                        save(step)
                        raise
                # What a stop looks at besides must leave no trace in a run that goes on.
                if planned and progress.is_best(record):
                    best = np.asarray(flatten(state.ema))
                progress = progress.after(record if planned else {})
                progress = progress._replace(seconds=earlier + time.monotonic() - began)
                record["seconds"] = progress.seconds
                log.add(record)
                if on_record is not None:
                    on_record(record)
                since = _Since(prefetcher)
            if ended or step % config.checkpoint_every == 0:
                save(step)
            if ended:
                break
    return record


class _Since:
    """What happened since the last record."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self._prefetcher, self._waited = prefetcher, prefetcher.waited
        self._began = time.monotonic()
        self._losses: list[float] = []
        self._norms: list[float] = []
        self._images = 0

    def add(self, loss: float, norm: float, images: int) -> None:
        self._losses.append(loss)
        self._norms.append(norm)
        self._images += images

    def record(self) -> Record:
        seconds = time.monotonic() - self._began
        told = {"loss": self._losses, "gradient_norm": self._norms}
        means = {name: float(np.mean(values)) for name, values in told.items() if values}
        return {
            **means,
            "images_per_second": self._images / seconds,
            "waiting_share": (self._prefetcher.waited - self._waited) / seconds,
        }


def _restored(arrays: Arrays, like: State, frozen: Arrays) -> tuple[State, Progress, NDArray[np.float32]]:
    """State, progress and best parameters from a checkpoint that must belong to this config."""
    for path, array in frozen.items():
        if path not in arrays or not np.array_equal(arrays[path], array):
            raise CheckpointError(f"{path} of the checkpoint is not that of this config, or of this dataset")
    state = {path.removeprefix(STATE): a for path, a in arrays.items() if path.startswith(STATE)}
    try:
        values = {name: arrays[PROGRESS + name].item() for name in Progress._fields}
        best = np.asarray(arrays[BEST], np.float32)
        return jax.tree.map(jnp.asarray, from_path(like, state)), Progress(**values), best
    except KeyError as error:
        raise CheckpointError(f"the checkpoint holds no {error}: another version made it") from error
    except ValueError as error:
        raise CheckpointError(f"the state is another one: {error}") from error
