"""Behaviour cloning: demonstrations in, a policy out, by the loss that its head brings along."""

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
from robopolicy.policies.base import flatten
from robopolicy.policies.catalogue import Arrays, by_path, from_path
from robopolicy.policies.energy import MOST
from robopolicy.policies.older_formats import current_path
from robopolicy.policies.vision_performer import Learner
from robopolicy.training.batches import Batch, Batches, Mirror, Prefetcher, Split
from robopolicy.training.checkpoint import BEST, FEATURES, MEAN, CheckpointError, RunFolder
from robopolicy.training.descent import Descent, Keys
from robopolicy.training.frames import Frames
from robopolicy.training.held_out import HeldOut
from robopolicy.training.loop import PROGRESS, Schedule, running
from robopolicy.training.metrics import ROLLOUT_RETURN, VALIDATION_LOSS, Record, Sink

COUNTER = "step"  # what a record of the log counts
STATE = "state/"
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
      learning_rate: highest learning rate of AdamW, after the warm-up; a cosine lowers it to a hundredth.
      warmup: steps of the warm-up, at most all but the last one.
      weight_decay: of AdamW, on matrices.
      clip: largest norm of a gradient.
      ema: decay of the running mean of parameters, which is what is evaluated and shipped.
      negatives: uniform actions that the demonstrated one must stand out from (for each dimension, where the
        head is autoregressive; a regression has none).
      mirror: mirror half of the frames.
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
    """What a checkpoint knows besides the state: steps skipped, and the best so far."""

    skipped: int = 0
    best_return: float = -np.inf
    best_loss: float = np.inf

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
    frames: Frames,
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
      frames: the demonstrations.
      split: which of them are for training.
      mirror: the task in a mirror, for config.mirror.
      rollout: flat parameters [P] -> how they do in the simulator.
      resume: go on after the latest checkpoint, to the same bits as if there had been no stop.
      on_record: called with every record, once it is saved if a checkpoint is due.
      on_step: called after each step.
      sinks: where records go besides the run folder.

    The best parameters, in every checkpoint, are those with the highest return in the simulator, or where
    it is not asked, those with the lowest loss on frames set aside. Ctrl-C or SIGTERM ends the run, saved,
    after the step in progress; a second one ends it at once. Raises FloatingPointError where the loss is not
    finite and the config says to stop, or twenty times in a row, CheckpointError where a checkpoint to resume
    from has other shapes.
    """
    if config.mirror and mirror is None:
        raise ValueError("mirror is True: this task has no mirror")
    if config.batch > len(split.train):
        raise ValueError(f"batch is {config.batch}: there are {len(split.train)} frames to train on")
    cloning = _Cloning(config, learner, features)
    batches = Batches(
        frames, split.train, config.batch, config.seed, mirror if config.mirror else None, config.jitter
    )
    held_out = HeldOut(frames, split.validation, config.batch // config.accumulate)
    schedule = Schedule(COUNTER, config.steps, config.checkpoint_every)
    record: Record | None = None
    with (
        running(
            run, schedule, resume=resume, restore=cloning.restore, on_record=on_record, sinks=sinks
        ) as loop,
        closing(Prefetcher(batches, loop.done, config.steps)) as prefetcher,
    ):
        since = _Since(prefetcher)
        for step, batch in enumerate(prefetcher, loop.done + 1):
            try:
                complaint = cloning.advance(step, batch, since)
            except FloatingPointError:
                if config.nonfinite == "stop":
                    loop.save(step - 1, cloning.arrays())
                raise
            ended = loop.ends_with(step)
            if complaint:
                loop.log({"step": step, "not_finite": complaint})
            if on_step is not None:
                on_step()
            planned, made = config.looks_at(step), None
            if ended or planned:
                made = {"step": step, **since.record(), "skipped": cloning.progress.skipped}
                made |= held_out.looked_at(cloning.descent, cloning.state.ema)
                if rollout is not None and config.plays_at(step):
                    try:
                        made |= rollout(cloning.mean).record()
                    except BaseException:  # minutes in a simulator must not cost what was learnt before
                        loop.save(step, cloning.arrays())
                        raise
                # What a stop looks at besides must leave no trace in a run that goes on.
                if planned:
                    cloning.compare(made)
                made["seconds"] = loop.seconds
                record, since = made, _Since(prefetcher)
            loop.complete(step, made, cloning.arrays, ended=ended)
            if ended:
                break
    return record


class _Cloning:
    """A descent and what goes with it: progress, and the best parameters so far."""

    def __init__(self, config: BCConfig, learner: Learner, features: Any) -> None:
        keys = Keys.of(config.seed)
        settings = {name: getattr(config, name) for name in ("batch", "accumulate", "negatives", "ema")}
        self.descent = Descent(learner, features, config.optimiser(), keys=keys, **settings)
        self.state = self.descent.placed(self.descent.begin(keys.parameters))
        self.progress = Progress()
        self._best = self.mean
        self._frozen = {FEATURES + path: array for path, array in by_path(features).items()}
        self._config, self._attention, self._in_a_row = config, learner.attention, 0

    @property
    def mean(self) -> NDArray[np.float32]:
        """The running mean of parameters, flat [P]."""
        return np.asarray(flatten(self.state.ema))

    def advance(self, step: int, batch: Batch, since: _Since) -> str:
        """Descend by a batch; "", or what was not finite, where the step was undone.

        Raises FloatingPointError where that ends the run.
        """
        self.state, made = self.descent.step(self.state, batch, step)
        if made["finite"]:
            self._in_a_row = 0
            since.add(float(made["loss"]), float(made["gradient_norm"]), self._config.batch)
            return ""
        self._in_a_row += 1
        complaint = f"step {step}: {self.descent.complaint(self.state.parameters, batch, step)}"
        words = f"{complaint}; attention is {self._attention}"
        if self._config.nonfinite == "stop":
            raise FloatingPointError(f"{words}; the policy is that of step {step - 1}")
        if self._in_a_row == SKIPS:  # not for its data, then: what was saved last had finite steps after it
            raise FloatingPointError(f"{words}; it is the last of {SKIPS} in a row")
        self.progress = self.progress._replace(skipped=self.progress.skipped + 1)
        return complaint

    def compare(self, record: Record) -> None:
        """Keep the parameters of `record` where it is the best so far."""
        if self.progress.is_best(record):
            self._best = self.mean
        self.progress = self.progress.after(record)

    def arrays(self) -> Arrays:
        """All of it, as a checkpoint holds it."""
        mean = self.mean
        return {
            MEAN: mean,
            BEST: self._best if self.progress.compared else mean,
            **self._frozen,
            **{STATE + path: array for path, array in by_path(self.state).items()},
            **{PROGRESS + name: np.asarray(value) for name, value in self.progress._asdict().items()},
        }

    def restore(self, arrays: Arrays) -> None:
        """Go back to a checkpoint. Raises CheckpointError where it belongs to another config or dataset."""
        arrays = {current_path(path): array for path, array in arrays.items()}
        for path, array in self._frozen.items():
            if path not in arrays or not np.array_equal(arrays[path], array):
                raise CheckpointError(
                    f"{path} of the checkpoint is not that of this config, or of this dataset"
                )
        state = {path.removeprefix(STATE): a for path, a in arrays.items() if path.startswith(STATE)}
        try:
            self.progress = Progress(**{name: arrays[PROGRESS + name].item() for name in Progress._fields})
            self._best = np.asarray(arrays[BEST], np.float32)
            self.state = self.descent.placed(jax.tree.map(jnp.asarray, from_path(self.state, state)))
        except KeyError as error:
            raise CheckpointError(f"the checkpoint holds no {error}: another version made it") from error
        except ValueError as error:
            raise CheckpointError(f"the state is another one: {error}") from error


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
        series = {"loss": self._losses, "gradient_norm": self._norms}
        means = {name: float(np.mean(values)) for name, values in series.items() if values}
        return {
            **means,
            "images_per_second": self._images / seconds,
            "waiting_share": (self._prefetcher.waited - self._waited) / seconds,
        }
