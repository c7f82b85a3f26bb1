"""Demonstrations as batches: which frames, in which order, how altered, and read before they are needed."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cv2
import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.frames import Frames

WIDER = 0.05  # share of the data's range that actions are looked for beyond it, on either side
NARROWEST = 0.05  # range of an action that hardly ever changes
LEAST_SPREAD = 1e-3  # standard deviation of a number below which it counts as constant
AHEAD = 4  # batches that are read before they are needed


Arrays = dict[str, NDArray[Any]]


class Mirror(NamedTuple):
    """What a task looks like in a mirror, on any leading axes.

    Functions of all images [..., H, W, 3] by name, of all vectors [..., K] by name, and of actions [..., A].
    """

    images: Callable[[Arrays], Arrays]
    vectors: Callable[[Arrays], Arrays]
    actions: Callable[[NDArray[Any]], NDArray[Any]]

    @staticmethod
    def of_each(
        image: Callable[[NDArray[Any]], NDArray[Any]],
        vector: Callable[[NDArray[Any]], NDArray[Any]],
        action: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> Mirror:
        """A mirror that treats all images alike, and all vectors."""

        def each(function: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[Arrays], Arrays]:
            return lambda arrays: {name: function(array) for name, array in arrays.items()}

        return Mirror(each(image), each(vector), action)


class Batch(NamedTuple):
    """Images [B, H, W, 3] uint8 and vectors [B, K] float32 by name, and actions [B, A] float32."""

    images: dict[str, NDArray[np.uint8]]
    vectors: dict[str, NDArray[np.float32]]
    action: NDArray[np.float32]

    @staticmethod
    def read(frames: Frames, indices: NDArray[np.intp]) -> Batch:
        """The frames of these indices, as they were recorded."""
        vectors = {name: array[indices].astype(np.float32) for name, array in frames.vectors.items()}
        return Batch(frames.images(indices), vectors, frames.action[indices].astype(np.float32))

    @property
    def observation(self) -> Arrays:
        """What a policy is given, each with the axis B."""
        return {**self.images, **self.vectors}


class Split(NamedTuple):
    """Frames to train on and frames to validate on; no episode has both."""

    train: NDArray[np.intp]
    validation: NDArray[np.intp]


def split_by_episode(episode: NDArray[Any], share: float, seed: int) -> Split:
    """Set aside `share` of the episodes, one at least where it is above 0; `episode` [F] is each frame's.

    Raises ValueError where no episode would be left to train on.
    """
    names = np.unique(episode)
    aside = int(np.ceil(share * len(names))) if share else 0
    if aside >= len(names):
        raise ValueError(f"validation is {share}: of {len(names)} episodes none would be left to train on")
    held = np.random.default_rng([seed, 1]).permutation(names)[:aside]
    validated = np.isin(episode, held)
    return Split(np.flatnonzero(~validated), np.flatnonzero(validated))


def statistics(
    frames: Frames, indices: NDArray[np.intp], mirror: Mirror | None
) -> dict[str, NDArray[np.float32]]:
    """What a policy has to know of the data, by name.

    `NAME_shift` and `NAME_scale` [K] are those of each vector, `action_low` and `action_high` [A] of actions.
    (vector - shift) * scale has mean zero and deviation one. The range of actions is 5% wider on either side
    than that of the data.
    """
    vectors = {name: array[indices].astype(np.float64) for name, array in frames.vectors.items()}
    actions = frames.action[indices].astype(np.float64)
    if mirror is not None:
        seen = mirror.vectors(vectors)
        vectors = {name: np.concatenate([array, seen[name]]) for name, array in vectors.items()}
        actions = np.concatenate([actions, mirror.actions(actions)])
    low, high = actions.min(axis=0), actions.max(axis=0)
    margin = np.maximum(WIDER * (high - low), (NARROWEST - (high - low)) / 2)
    found = {
        **{f"{name}_shift": array.mean(axis=0) for name, array in vectors.items()},
        **{f"{name}_scale": 1.0 / np.maximum(a.std(axis=0), LEAST_SPREAD) for name, a in vectors.items()},
        "action_low": low - margin,
        "action_high": high + margin,
    }
    return {name: array.astype(np.float32) for name, array in found.items()}


class Batches:
    """Batch number s of a run, the same for the same seed whatever was read before it.

    Frames come in a new order every epoch. With `mirror`, half of them are mirrored. With `jitter`, every
    channel of an image is multiplied by a number within 1 +- jitter: colours change and nothing moves.
    """

    def __init__(
        self,
        frames: Frames,
        chosen: NDArray[np.intp],
        size: int,
        seed: int,
        mirror: Mirror | None,
        jitter: float,
    ) -> None:
        self._data, self._frames, self._size, self._seed = frames, chosen, size, seed
        self._mirror, self._jitter = mirror, jitter
        self._orders: dict[int, NDArray[np.intp]] = {}

    def indices(self, step: int) -> NDArray[np.intp]:
        """The frames of a batch [B], steps counted from 0."""
        epochs, places = np.divmod(np.arange(step * self._size, (step + 1) * self._size), len(self._frames))
        return np.array([self._order(int(e))[p] for e, p in zip(epochs, places, strict=True)])

    def _order(self, epoch: int) -> NDArray[np.intp]:
        if epoch not in self._orders:
            order = np.random.default_rng([self._seed, 2, epoch]).permutation(self._frames)
            self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1} | {epoch: order}
        return self._orders[epoch]

    def at(self, step: int) -> Batch:
        """Read a batch."""
        batch = Batch.read(self._data, self.indices(step))
        rng = np.random.default_rng([self._seed, 3, step])
        if self._mirror is not None:
            batch = _mirrored(batch, rng.random(self._size) < 0.5, self._mirror)
        if self._jitter:
            gains = rng.uniform(1 - self._jitter, 1 + self._jitter, (self._size, 3))
            batch = batch._replace(images={n: _brightened(a, gains) for n, a in batch.images.items()})
        return batch


def _mirrored(batch: Batch, flip: NDArray[np.bool_], mirror: Mirror) -> Batch:
    """A batch with those frames mirrored where `flip` [B] is true."""
    chosen = jax.tree.map(lambda array: array[flip], batch)
    seen = Batch(mirror.images(chosen.images), mirror.vectors(chosen.vectors), mirror.actions(chosen.action))
    for array, part in zip(jax.tree.leaves(batch), jax.tree.leaves(seen), strict=True):
        array[flip] = part
    return batch


def _brightened(images: NDArray[np.uint8], gains: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Images [B, H, W, 3] with every channel multiplied by its gain [B, 3]."""
    tables = np.clip(np.arange(256)[:, None] * gains[:, None, :], 0, 255).round().astype(np.uint8)
    return np.stack([cv2.LUT(i, t[:, None, :]) for i, t in zip(images, tables, strict=True)])


class Prefetcher:
    """Iterates over batches that a thread reads ahead; `waited` is how long they were waited for (s)."""

    def __init__(self, batches: Batches, first: int, last: int) -> None:
        """Batches `first` to `last` - 1."""
        self.waited = 0.0
        self._batches, self._range = batches, range(first, last)
        self._ready: queue.Queue[Batch | BaseException] = queue.Queue(AHEAD)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="batches", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for step in self._range:
            try:
                found: Batch | BaseException = self._batches.at(step)
            except BaseException as error:  # whatever it is, it is raised where the batch is wanted
                found = error
            while not self._over.is_set():
                try:
                    self._ready.put(found, timeout=0.1)
                    break
                except queue.Full:
                    continue
            if self._over.is_set() or isinstance(found, BaseException):
                return

    def __iter__(self) -> Iterator[Batch]:
        for _ in self._range:
            began = time.monotonic()
            found = self._ready.get()
            self.waited += time.monotonic() - began
            if isinstance(found, BaseException):
                raise found
            yield found

    def close(self) -> None:
        """End the thread; what it has read is of no interest."""
        self._over.set()
        self._thread.join()
