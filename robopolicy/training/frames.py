"""Single frames of a dataset, in any order, read from its own file.

Minari decodes whole episodes, of 500 x 500 images more than 100 MB each. Recordings hold one compressed chunk
per frame, so this reads any frame alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.datasets import DAMAGE, Dataset, DatasetError


class Frames:
    """Every frame of a dataset that has an action, by index. The images stay on the disk.

    A forked process must open its own.

    Attributes:
      vectors: vectors [F, K] by name.
      action: [F, A]; of noisy demonstrations, the intended action.
      episode: of each frame, [F].
    """

    def __init__(self, dataset: Dataset) -> None:
        """Open a dataset. Raises DatasetError if it has changed since it was checked."""
        self._where = repr(str(dataset.path))
        self._first = np.cumsum([0, *dataset.steps[:-1]])
        self._names = tuple(dataset.columns.images)
        self.episode = dataset.episode
        try:
            # No cache of chunks, since each of thousands of arrays would have its own.
            self._file = h5py.File(dataset.file, rdcc_nbytes=0)
            episodes = [self._file[f"episode_{number}"] for number in range(len(dataset.steps))]
            self._images = [
                {name: episode[f"observations/{name}"] for name in self._names} for episode in episodes
            ]
            self.vectors = {
                name: np.concatenate([e[f"observations/{name}"][: len(e["actions"])] for e in episodes])
                for name in dataset.columns.vectors
            }
            self.action = np.concatenate([_intended(episode) for episode in episodes])
        except DAMAGE as error:
            raise DatasetError(f"{self._where} is damaged: {error}") from error

    def __len__(self) -> int:
        return len(self.episode)

    def image(self, index: int, name: str) -> NDArray[np.uint8]:
        """An image [H, W, 3] of a frame. Raises DatasetError if it cannot be read."""
        episode = self.episode[index]
        try:
            return np.asarray(self._images[episode][name][index - self._first[episode]])
        except OSError as error:
            raise DatasetError(f"{self._where} is damaged at {name} of frame {index}: {error}") from error

    def images(self, indices: Sequence[int] | NDArray[np.intp]) -> dict[str, NDArray[np.uint8]]:
        """The images [B, H, W, 3] of these frames by name, in this order."""
        return {name: np.stack([self.image(i, name) for i in indices]) for name in self._names}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _intended(episode: h5py.Group) -> NDArray[Any]:
    noisy = "infos" in episode and "intended_action" in episode["infos"]
    return np.asarray(episode["infos/intended_action" if noisy else "actions"][()])
