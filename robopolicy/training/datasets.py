"""Demonstrations as they are read: Minari datasets, which are checked, and caches of their single frames.

Minari decodes whole episodes, of 500 x 500 images more than 100 MB each. A cache holds every frame as one
compressed chunk, so that training reads any of them alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.checkpoint import clear_about_full_disks

FORMAT = 1
OURS = "robopolicy"  # of a dataset's metadata, where recordings tell what they are
LEVEL = 1  # of gzip in caches: read often, written once
COLUMNS = ("poses", "action", "episode", "step")
POSES, ACTIONS = 14, 12  # numbers in a frame


class DatasetError(ValueError):
    """A dataset or a cache that is not what it should be."""


@dataclass(frozen=True)
class Dataset:
    """A Minari dataset that has been checked.

    Attributes:
      path: its folder.
      image_size: pixels a side.
      steps: of each episode; its observations are one more.
      about: what its recording told: task, engine, renderer, versions, seeds, scores.
    """

    path: Path
    image_size: int
    steps: tuple[int, ...]
    about: Mapping[str, Any]

    @property
    def episode(self) -> NDArray[np.intp]:
        """Whose every frame is that has an action, [F]."""
        return np.repeat(np.arange(len(self.steps)), self.steps)

    @property
    def data(self) -> Path:
        """What `minari.MinariDataset` takes."""
        return self.path / "data"

    @property
    def cache(self) -> Path:
        """Where its frames are kept one by one, unless another place is given."""
        return self.path.with_name(f"{self.path.resolve().name}.cache.hdf5")

    def is_in(self, cache: FrameCache) -> bool:
        """Whether `cache` is this dataset's, and not another's."""
        same = cache.about == {**self.about, "frames": sum(self.steps)}
        return same and np.array_equal(cache.episode, self.episode)


def open_dataset(path: Path, task: str | None, image_size: int | None = None) -> Dataset:
    """Check a dataset of a task, or of any, without decoding an image.

    Raises FileNotFoundError where there is none, DatasetError where it is of another task, format or image
    size, lacks frames, or has an episode that is cut short: with what was expected and what was found.
    """
    where = repr(str(path))
    text, file = path / "data" / "metadata.json", path / "data" / "main_data.hdf5"
    if not text.is_file() or not file.is_file():
        raise FileNotFoundError(
            f"{where} is no Minari dataset in HDF5: it holds no data/metadata.json, main_data.hdf5"
        )
    try:
        metadata = json.loads(text.read_text())
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: data/metadata.json is not JSON: {error}") from error
    about = metadata.get(OURS) if isinstance(metadata, dict) else None
    if not isinstance(about, dict):
        wanted = "a task" if task is None else repr(task)
        raise DatasetError(f"{where} does not tell its task: a recording of {wanted} was expected")
    _check_about(where, about, about.get("task") if task is None else task)
    count = metadata.get("total_episodes")
    if not isinstance(count, int) or count < 1:
        raise DatasetError(f"{where} has total_episodes {count!r}: a number of 1 or more was expected")
    try:
        with h5py.File(file) as stored:
            if len(stored) != count:
                raise DatasetError(f"{where} holds {len(stored)} episodes: {count} were expected")
            found = [_checked(f"{where}: episode {n}", stored[f"episode_{n}"]) for n in range(count)]
    except DatasetError:
        raise
    except (OSError, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise DatasetError(f"{where} is damaged: {error}") from error
    sizes = {size for _, size in found}
    if len(sizes) != 1:
        raise DatasetError(f"{where} has images of the sizes {sorted(sizes)}: one was expected")
    (size,) = sizes
    _check_size(where, size, image_size)
    return Dataset(path, size, tuple(steps for steps, _ in found), about)


def _check_about(where: str, about: Mapping[str, Any], task: Any) -> None:
    for name, wanted in (("task", task), ("format", FORMAT)):
        if about.get(name) != wanted:
            raise DatasetError(f"{where} has {name} {about.get(name)!r}: {wanted!r} was expected")
    for name, kind in (("environment", dict), ("recording", dict), ("renderer", str)):
        if not isinstance(about.get(name), kind):
            raise DatasetError(f"{where} has {name} {about.get(name)!r}: a {kind.__name__} was expected")
    if not isinstance(about["environment"].get("engine"), str):
        raise DatasetError(f"{where} does not tell its engine")


def _check_size(where: str, size: int, wanted: int | None) -> None:
    if wanted is not None and size != wanted:
        raise DatasetError(f"{where} has images of {size} x {size}: {wanted} x {wanted} was expected")


def _checked(where: str, episode: h5py.Group) -> tuple[int, int]:
    """Steps and image size of an episode that is whole."""
    steps = len(episode["actions"])
    if int(episode.attrs["total_steps"]) != steps or steps < 1:
        raise DatasetError(
            f"{where} has {steps} actions: {episode.attrs['total_steps']} were expected, and 1 at least"
        )
    side = episode["observations/image"].shape[1]
    columns: dict[str, tuple[tuple[int, ...], type]] = {
        "observations/image": ((steps + 1, side, side, 3), np.uint8),
        "observations/poses": ((steps + 1, POSES), np.floating),
        "actions": ((steps, ACTIONS), np.floating),
        "rewards": ((steps,), np.floating),
        "terminations": ((steps,), np.bool_),
        "truncations": ((steps,), np.bool_),
    }
    if "infos" in episode and "intended_action" in episode["infos"]:
        columns["infos/intended_action"] = ((steps, ACTIONS), np.floating)
    for name, (shape, kind) in columns.items():
        array = episode[name]
        if array.shape != shape or not np.issubdtype(array.dtype, kind):
            raise DatasetError(
                f"{where} has {name} of {array.dtype}{list(array.shape)}: "
                f"{kind.__name__}{list(shape)} was expected"
            )
        if kind is np.floating and not np.isfinite(array[()]).all():
            raise DatasetError(f"{where} has {name} that are not finite: numbers were expected")
        if name.endswith(("actions", "intended_action")) and (largest := np.abs(array[()]).max()) > 1 + 1e-6:
            raise DatasetError(f"{where} has {name} of {largest:.3g}: numbers in [-1, 1] were expected")
    ended = episode["terminations"][()] | episode["truncations"][()]
    if not ended[-1]:
        raise DatasetError(f"{where} is cut short: its last step does not end it")
    if ended[:-1].any():
        raise DatasetError(f"{where} ends at step {int(np.argmax(ended)) + 1}: it has {steps}")
    return steps, int(side)


def build_cache(dataset: Dataset, path: Path) -> None:
    """Write every frame of `dataset` that has an action to a cache at `path`, whole or not at all.

    Where demonstrations were noisy, the action kept is the one that was intended.
    """
    from minari import MinariDataset

    partial = path.with_name(f".{path.name}.{os.getpid()}")
    side, frames = dataset.image_size, sum(dataset.steps)
    try:
        with clear_about_full_disks(path), h5py.File(partial, "w") as file:
            images = file.create_dataset(
                "image",
                (frames, side, side, 3),
                np.uint8,
                chunks=(1, side, side, 3),
                compression="gzip",
                compression_opts=LEVEL,
            )
            columns: dict[str, list[NDArray[Any]]] = {name: [] for name in COLUMNS}
            at = 0
            for number, episode in enumerate(MinariDataset(dataset.data).iterate_episodes()):
                steps = len(episode)
                for step, image in enumerate(episode.observations["image"][:steps]):
                    images[at + step] = image
                at += steps
                columns["poses"].append(episode.observations["poses"][:steps])
                columns["action"].append(episode.infos.get("intended_action", episode.actions))
                columns["episode"].append(np.full(steps, number))
                columns["step"].append(np.arange(steps))
            if at != frames:
                raise DatasetError(f"{str(dataset.path)!r} has {at} frames: {frames} were expected")
            for name, parts in columns.items():
                file[name] = np.concatenate(parts)
            file.attrs["about"] = json.dumps({**dataset.about, "frames": frames})
        os.replace(partial, path)
    except OSError as error:
        if error.errno is not None:
            raise
        # HDF5 tells of a chunk that cannot be unpacked without a number.
        raise DatasetError(f"{str(dataset.path)!r} is damaged: {error}") from error
    finally:
        partial.unlink(missing_ok=True)


class FrameCache:
    """Frames by index, read alone; `poses` [F, 14], `action` [F, 12], `episode` and `step` [F] are in memory.

    A process that was forked or spawned opens its own.
    """

    def __init__(self, path: Path, task: str, image_size: int | None = None) -> None:
        """Open a cache.

        Raises FileNotFoundError where there is none, DatasetError where it is damaged, no cache, or one of
        another task, format or image size.
        """
        where = repr(str(path))
        if not path.is_file():
            raise FileNotFoundError(f"{where} does not exist")
        with contextlib.ExitStack() as stack:
            try:
                self._file = stack.enter_context(h5py.File(path))
                self.about: dict[str, Any] = dict(json.loads(self._file.attrs["about"]))
                self._images = self._file["image"]
                self.poses, self.action, self.episode, self.step = (self._file[name][()] for name in COLUMNS)
                frames, side = len(self._images), self._images.shape[1]
                found = [a.shape for a in (self._images, self.poses, self.action, self.episode, self.step)]
            except (OSError, KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
                raise DatasetError(f"{where} is no cache of frames, or damaged: {error}") from error
            _check_about(where, self.about, task)
            wanted = [(frames, side, side, 3), (frames, POSES), (frames, ACTIONS), (frames,), (frames,)]
            if found != wanted or frames != self.about.get("frames") or self._images.dtype != np.uint8:
                raise DatasetError(f"{where} has columns of {found}: {wanted} was expected")
            _check_size(where, side, image_size)
            if not (np.isfinite(self.poses).all() and np.abs(self.action).max() <= 1 + 1e-6):
                raise DatasetError(
                    f"{where} is damaged: poses must be finite, and actions numbers in [-1, 1]; remove it"
                )
            stack.pop_all()
        self._where = where

    def __len__(self) -> int:
        return len(self.step)

    @property
    def image_size(self) -> int:
        """Pixels a side."""
        return int(self._images.shape[1])

    def image(self, index: int) -> NDArray[np.uint8]:
        """The image [S, S, 3] of a frame."""
        try:
            return np.asarray(self._images[index])
        except OSError as error:
            raise DatasetError(f"{self._where} is damaged at frame {index}: {error}; remove it") from error

    def images(self, indices: Sequence[int] | NDArray[np.intp]) -> NDArray[np.uint8]:
        """The images [B, S, S, 3] of these frames, in this order."""
        return np.stack([self.image(index) for index in indices])

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return (self.image(index) for index in range(len(self)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextlib.contextmanager
def cached(dataset: Dataset, path: Path, say: Callable[[str], None]) -> Iterator[FrameCache]:
    """The cache of `dataset` at `path`, made where there is none yet; `say` is told of what takes time.

    Raises DatasetError where it is the cache of another dataset, and as `FrameCache` and `build_cache` do.
    """
    if path.is_dir():
        raise DatasetError(f"cache is {str(path)!r}: it must be a file, and is a folder")
    if not path.parent.is_dir():
        raise DatasetError(f"cache is {str(path)!r}: the folder for it does not exist")
    if not path.exists():
        say(f"writing the {sum(dataset.steps)} frames of {dataset.path.name} one by one to {path}")
        build_cache(dataset, path)
    with FrameCache(path, dataset.about["task"], dataset.image_size) as cache:
        if not dataset.is_in(cache):
            raise DatasetError(
                f"cache is {str(path)!r}: it is that of another dataset; remove it, or give another file"
            )
        yield cache
