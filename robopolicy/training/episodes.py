"""One episode of a dataset, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray

from robopolicy.training.datasets import Dataset, DatasetError


class Episode(NamedTuple):
    """A demonstration of S steps.

    Attributes:
      actions, rewards: [S, A] and [S], as they were executed.
      images: [S + 1, H, W, 3], on the disk.
    """

    actions: NDArray[np.float64]
    rewards: NDArray[np.float64]
    images: h5py.Dataset

    def image(self, index: int) -> NDArray[np.uint8]:
        """What was seen before step `index`, or after the last one. Raises DatasetError for damage."""
        try:
            return np.asarray(self.images[index])
        except OSError as error:
            raise DatasetError(
                f"image {index} of {self.images.file.filename!r} is damaged: {error}"
            ) from error


@contextmanager
def open_episode(dataset: Dataset, number: int) -> Iterator[Episode]:
    """An episode, whose images are read one by one while it is open. Raises ValueError for no episode."""
    if not 0 <= number < len(dataset.steps):
        raise ValueError(f"episode is {number}: the dataset has 0 to {len(dataset.steps) - 1}")
    with h5py.File(dataset.data / "main_data.hdf5") as file:
        stored = file[f"episode_{number}"]
        yield Episode(stored["actions"][()], stored["rewards"][()], stored["observations/image"])
