"""One episode of a dataset, frame by frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
      images: [S + 1, H, W, 3] by name, on the disk.
    """

    actions: NDArray[np.float64]
    rewards: NDArray[np.float64]
    images: Mapping[str, h5py.Dataset]

    def image(self, index: int) -> NDArray[np.uint8]:
        """What the first camera saw before step `index`, or after the last one.

        Raises DatasetError for damage, or where there is no image.
        """
        if not self.images:
            raise DatasetError("the dataset has no images: there is nothing to be shown")
        images = next(iter(self.images.values()))
        try:
            return np.asarray(images[index])
        except OSError as error:
            raise DatasetError(f"image {index} of {images.file.filename!r} is damaged: {error}") from error


@contextmanager
def open_episode(dataset: Dataset, number: int) -> Iterator[Episode]:
    """An episode, whose images are read one by one while it is open. Raises ValueError for no episode."""
    if not 0 <= number < len(dataset.steps):
        raise ValueError(f"episode is {number}: the dataset has 0 to {len(dataset.steps) - 1}")
    with h5py.File(dataset.file) as file:
        stored = file[f"episode_{number}"]
        images = {name: stored[f"observations/{name}"] for name in dataset.columns.images}
        yield Episode(stored["actions"][()], stored["rewards"][()], images)
