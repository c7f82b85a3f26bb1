"""Single frames of datasets, in any order, read from their own files.

Minari decodes whole episodes, of 500 x 500 images more than 100 MB each. Recordings hold one compressed chunk
per frame, so this reads any frame alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from math import prod
from typing import Any, Self

import h5py
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from robopolicy.training.datasets import DAMAGE, INTENDED, Dataset, DatasetError

IN_DIGEST = 64  # frames whose images are read for a digest


class Frames:
    """Every frame with an action of datasets with the same columns, by index. The images stay on the disk.

    A forked process must open its own.

    Attributes:
      vectors: vectors [F, K] by name.
      action: [F, A]; of noisy demonstrations, and of a policy's episodes, the intended action.
      episode: of each frame, [F]; episodes count through all datasets.
    """

    def __init__(self, *datasets: Dataset) -> None:
        """Open datasets, one or more. Raises DatasetError if one has changed since it was checked."""
        steps = [count for dataset in datasets for count in dataset.steps]
        self.episode = np.repeat(np.arange(len(steps)), steps)
        self._first = np.cumsum([0, *steps[:-1]])
        self._names = tuple(datasets[0].columns.images)
        self._where = [repr(str(dataset.path)) for dataset in datasets for _ in dataset.steps]
        self._files = ExitStack()
        self._images: list[dict[str, Any]] = []
        vectors: dict[str, list[NDArray[Any]]] = {name: [] for name in datasets[0].columns.vectors}
        actions = []
        for dataset in datasets:
            try:
                # No cache of chunks, since each of thousands of arrays would have its own.
                file = self._files.enter_context(h5py.File(dataset.file, rdcc_nbytes=0))
                for episode in (file[f"episode_{number}"] for number in range(len(dataset.steps))):
                    self._images.append({name: episode[f"observations/{name}"] for name in self._names})
                    for name, arrays in vectors.items():
                        arrays.append(episode[f"observations/{name}"][: len(episode["actions"])])
                    actions.append(episode[INTENDED if INTENDED in episode else "actions"][()])
            except DAMAGE as error:
                self.close()
                raise DatasetError(f"{str(dataset.path)!r} is damaged: {error}") from error
        self.vectors = {name: np.concatenate(arrays) for name, arrays in vectors.items()}
        self.action = np.concatenate(actions)

    def __len__(self) -> int:
        return len(self.episode)

    def image(self, index: int, name: str) -> NDArray[np.uint8]:
        """An image [H, W, 3] of a frame, not to be changed. Raises DatasetError if it cannot be read."""
        episode = self.episode[index]
        try:
            return _frame(self._images[episode][name], int(index - self._first[episode]))
        except (OSError, isal_zlib.error) as error:  # type: ignore[misc]  # its stub declares an instance
            raise DatasetError(
                f"{self._where[episode]} is damaged at {name} of frame {index}: {error}"
            ) from error

    def images(self, indices: Sequence[int] | NDArray[np.intp]) -> dict[str, NDArray[np.uint8]]:
        """The images [B, H, W, 3] of these frames by name, in this order."""
        return {name: np.stack([self.image(i, name) for i in indices]) for name in self._names}

    def digest(self) -> str:
        """A hash of all actions and vectors, and of some images: equal for the same frames."""
        some = np.linspace(0, len(self) - 1, min(len(self), IN_DIGEST)).astype(int)
        vectors = (self.vectors[name] for name in sorted(self.vectors))
        images = (self.image(index, name) for name in sorted(self._names) for index in some)
        total = hashlib.sha256()
        for array in chain((self.episode, self.action), vectors, images):
            total.update(f"{array.dtype.str} {array.shape} ".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._files.close()


def _frame(images: h5py.Dataset, place: int) -> NDArray[np.uint8]:
    """One frame of `images`. Several threads can read at once where a recording of ours is read."""
    shape = images.shape[1:]
    if images.chunks != (1, *shape) or not _is_gzip_alone(images):
        return np.asarray(images[place])
    try:
        # h5py would decompress one frame at a time, whatever the number of threads, and with the slower zlib.
        skipped, packed = images.id.read_direct_chunk((place, *(0 for _ in shape)))
    except RuntimeError:  # never written, so it has the fill value
        return np.asarray(images[place])
    if skipped:
        return np.asarray(images[place])
    size = images.dtype.itemsize * prod(shape)
    raw = isal_zlib.decompress(packed, bufsize=size)
    if len(raw) != size:
        raise OSError(f"it has {len(raw)} bytes where {prod(shape)} numbers are stored")
    return np.frombuffer(raw, images.dtype).reshape(shape)


def _is_gzip_alone(images: h5py.Dataset) -> bool:
    """Whether gzip is the only filter through which its chunks went."""
    filters = images.id.get_create_plist()
    return bool(filters.get_nfilters() == 1 and filters.get_filter(0)[0] == h5py.h5z.FILTER_DEFLATE)
