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
    """A demonstration of S steps: executed actions [S, A], rewards [S], and images [S + 1, H, W, 3] by name.

    The images stay on the disk.
    """

    actions: NDArray[np.float64]
    rewards: NDArray[np.float64]
    images: Mapping[str, h5py.Dataset]

    def image(self, index: int) -> NDArray[np.uint8]:
        """The image of the first camera before step `index`, or after the last one.

        Raises DatasetError for a damaged image, or for a dataset without images.
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
    """An episode, open for reading single images. Raises ValueError if the number is out of range."""
    if not 0 <= number < len(dataset.steps):
        raise ValueError(f"episode is {number}: the dataset has 0 to {len(dataset.steps) - 1}")
    with h5py.File(dataset.file) as file:
        episode = file[f"episode_{number}"]
        images = {name: episode[f"observations/{name}"] for name in dataset.columns.images}
        yield Episode(episode["actions"][()], episode["rewards"][()].astype(float), images)
