"""Demonstrations as batches: their choice, order and augmentation, read before they are needed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from math import ceil
from typing import Any, Generic, NamedTuple, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.frames import Frames

MARGIN = 0.05  # of the range of actions beyond that of the data, on either side, as a share of it
NARROWEST = 0.05  # range of an action that is nearly constant
LEAST_SPREAD = 1e-3  # standard deviation below which a number counts as constant
AHEAD = 4  # batches that are read before they are needed

Arrays = dict[str, NDArray[Any]]
T = TypeVar("T")


class Mirror(NamedTuple):
    """Functions that mirror images [..., H, W, 3], vectors [..., K] and actions [..., A] of a task."""

    image: Callable[[NDArray[Any]], NDArray[Any]]
    vector: Callable[[NDArray[Any]], NDArray[Any]]
    action: Callable[[NDArray[Any]], NDArray[Any]]


class Reach(NamedTuple):
    """How far around its step a demonstration reaches: frames up to it, and actions from it on.

    Both end with the episode. Frames before its first are as the first. Actions after its last are as the
    last: no step of the demonstration is left out, and no head needs a loss of parts of an action.
    """

    history: int = 1
    chunk: int = 1


ONE_STEP = Reach()


class Batch(NamedTuple):
    """Images [B, H, W, 3] uint8 and vectors [B, K] float32 by name, and actions [B, A] float32.

    With a history of T > 1 frames, images are [B, T, H, W, 3], those of the step itself first. With a chunk
    of C > 1 actions, these are [B, C, A].
    """

    images: dict[str, NDArray[np.uint8]]
    vectors: dict[str, NDArray[np.float32]]
    action: NDArray[np.float32]

    @staticmethod
    def read(frames: Frames, indices: NDArray[np.intp], reach: Reach = ONE_STEP) -> Batch:
        """The demonstrations of the frames of these indices [B], without augmentation."""
        vectors = {name: array[indices].astype(np.float32) for name, array in frames.vectors.items()}
        seen = _nearby(frames.episode, indices, -np.arange(reach.history))
        planned = _nearby(frames.episode, indices, np.arange(reach.chunk))
        images = {n: a.reshape(*seen.shape, *a.shape[1:]) for n, a in frames.images(seen.ravel()).items()}
        return Batch(images, vectors, frames.action[planned].astype(np.float32))

    @property
    def observation(self) -> Arrays:
        """The policy's observations, each with the axis B."""
        return {**self.images, **self.vectors}


def _nearby(episode: NDArray[Any], indices: NDArray[np.intp], offsets: NDArray[np.intp]) -> NDArray[np.intp]:
    """Indices [B, K] of the frames at K offsets from those of `indices`; [B] for one offset, of zero.

    Where it would leave its episode, an offset ends at the episode's first or last frame.
    """
    if len(offsets) == 1:
        return indices
    own = episode[indices]
    first, last = np.searchsorted(episode, own, "left"), np.searchsorted(episode, own, "right") - 1
    return np.clip(np.asarray(indices)[:, None] + offsets, first[:, None], last[:, None])


class Split(NamedTuple):
    """Frames for training and frames for validation, of different episodes."""

    train: NDArray[np.intp]
    validation: NDArray[np.intp]


def split_by_episode(episode: NDArray[Any], share: float, seed: int) -> Split:
    """Use `share` of the episodes for validation, at least one if it is above 0; `episode` is [F].

    Raises ValueError if no episode is left for training.
    """
    names = np.unique(episode)
    count = ceil(Fraction(str(share)) * len(names))  # in floats, 0.07 * 100 is above 7
    if count >= len(names):
        raise ValueError(f"validation is {share}: of {len(names)} episodes none would be left to train on")
    held = np.random.default_rng([seed, 1]).permutation(names)[:count]
    validation = np.isin(episode, held)
    return Split(np.flatnonzero(~validation), np.flatnonzero(validation))


def moving(frames: Frames, split: Split, least: float) -> Split:
    """The split without the training frames whose action has no number of `least` or more, by absolute value.

    Validation frames stay: losses of different values of `least` are of the same frames.
    """
    return split._replace(train=split.train[np.abs(frames.action[split.train]).max(axis=1) >= least])


def statistics(
    frames: Frames, indices: NDArray[np.intp], mirror: Mirror | None, chunk: int = 1
) -> dict[str, NDArray[np.float32]]:
    """Statistics of the data for a policy that chooses `chunk` actions at once, by name.

    `NAME_shift` and `NAME_scale` [K] belong to each vector: (vector - shift) * scale has mean zero and
    deviation one, or less for a number that is nearly constant. `action_low` and `action_high` [A] are the
    range of actions: that of the chunks of these frames, 5% wider on either side, and at least 0.05 wide.
    With a `mirror`, all are of the data and its mirror image.
    """
    vectors = {name: array[indices].astype(np.float64) for name, array in frames.vectors.items()}
    planned = np.unique(_nearby(frames.episode, indices, np.arange(chunk)))
    actions = frames.action[planned].astype(np.float64)
    if mirror is not None:
        vectors = {n: np.concatenate([array, mirror.vector(array)]) for n, array in vectors.items()}
        actions = np.concatenate([actions, mirror.action(actions)])
    low, high = actions.min(axis=0), actions.max(axis=0)
    margin = np.maximum(MARGIN * (high - low), (NARROWEST - (high - low)) / 2)
    values = {
        **{f"{name}_shift": array.mean(axis=0) for name, array in vectors.items()},
        **{f"{name}_scale": 1.0 / np.maximum(a.std(axis=0), LEAST_SPREAD) for name, a in vectors.items()},
        "action_low": low - margin,
        "action_high": high + margin,
    }
    return {name: array.astype(np.float32) for name, array in values.items()}


class Batches:
    """The batches of a run by number; each depends on the seed and its number alone.

    Every epoch has a new order. With `mirror`, each frame is mirrored with probability 1/2. With `jitter`,
    every channel of an image is multiplied by a number within 1 +- jitter.
    """

    def __init__(
        self,
        frames: Frames,
        chosen: NDArray[np.intp],
        size: int,
        seed: int,
        mirror: Mirror | None,
        jitter: float,
        reach: Reach = ONE_STEP,
    ) -> None:
        """Batches of `size` from the frames whose indices are `chosen`."""
        self._frames, self._chosen, self._size, self._seed = frames, chosen, size, seed
        self._mirror, self._jitter, self._reach = mirror, jitter, reach
        self._order = lru_cache(maxsize=2)(self._permutation)

    def indices(self, step: int) -> NDArray[np.intp]:
        """The frames of a batch [B]; steps count from 0."""
        epochs, places = np.divmod(np.arange(step * self._size, (step + 1) * self._size), len(self._chosen))
        return np.array([self._order(int(e))[p] for e, p in zip(epochs, places, strict=True)])

    def _permutation(self, epoch: int) -> NDArray[np.intp]:
        return np.random.default_rng([self._seed, 2, epoch]).permutation(self._chosen)

    def at(self, step: int) -> Batch:
        """Read a batch."""
        batch = Batch.read(self._frames, self.indices(step), self._reach)
        rng = np.random.default_rng([self._seed, 3, step])
        if self._mirror is not None:
            batch = _mirrored(batch, rng.random(self._size) < 0.5, self._mirror)
        if self._jitter:
            gains = rng.uniform(1 - self._jitter, 1 + self._jitter, (self._size, 3))
            batch = batch._replace(images={n: _brightened(a, gains) for n, a in batch.images.items()})
        return batch


def _mirrored(batch: Batch, flip: NDArray[np.bool_], mirror: Mirror) -> Batch:
    """A batch in which the frames with true `flip` [B] are mirrored."""
    for arrays, function in ((batch.images, mirror.image), (batch.vectors, mirror.vector)):
        for array in arrays.values():
            array[flip] = function(array[flip])
    batch.action[flip] = mirror.action(batch.action[flip])
    return batch


def _brightened(images: NDArray[np.uint8], gains: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Images [B, ..., H, W, 3], in place, with every channel multiplied by its gain [B, 3]."""
    for image, gain in zip(images, gains, strict=True):
        rows = image.reshape(-1, *image.shape[-2:])
        cv2.transform(rows, np.diag(gain), dst=rows)  # faster than a table
    return images


class Prefetcher(Generic[T]):
    """Iterates over batches that threads read in advance; `waited` is the time of all waits (s)."""

    def __init__(self, read: Callable[[int], T], first: int, last: int, threads: int = 1) -> None:
        """Call `read` for batches `first` to `last` - 1, each in one of the threads."""
        self.waited = 0.0
        self._threads = ThreadPoolExecutor(threads, "batches")
        self._reads = (self._threads.submit(read, step) for step in range(first, last))
        self._ahead = deque(islice(self._reads, AHEAD + threads - 1))

    def __iter__(self) -> Iterator[T]:
        while self._ahead:
            began = time.monotonic()
            batch = self._ahead.popleft().result()
            self.waited += time.monotonic() - began
            self._ahead.extend(islice(self._reads, 1))
            yield batch

    def close(self) -> None:
        """End the threads and discard their batches."""
        self._threads.shutdown(cancel_futures=True)
