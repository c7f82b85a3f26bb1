"""Statistics of the columns of a LeRobot dataset, as its meta/ holds them.

LeRobot samples images and estimates quantiles; these are exact, from histograms of all pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
LEVELS = np.arange(256) / 255  # of a pixel's channel
Statistics = dict[str, Any]


def of_numbers(array: NDArray[Any]) -> Statistics:
    """Statistics of rows [S, N] or [S], each a list [N]: min, max, mean, std, count and quantiles."""
    rows = np.asarray(array, np.float64).reshape(len(array), -1)
    quantiles = np.quantile(rows, [*QUANTILES.values()], axis=0)
    return {
        "min": rows.min(axis=0).tolist(),
        "max": rows.max(axis=0).tolist(),
        "mean": rows.mean(axis=0).tolist(),
        "std": rows.std(axis=0).tolist(),
        "count": [len(rows)],
        **dict(zip(QUANTILES, quantiles.tolist(), strict=True)),
    }


def histogram(images: Iterable[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """How often each level of each channel occurs in images [H, W, 3], [3, 256]."""
    counts = np.zeros((3, 256), np.int64)
    for image in images:
        for channel in range(3):
            counts[channel] += np.bincount(image[..., channel].ravel(), minlength=256)
    return counts


def of_images(counts: NDArray[np.int64], images: int) -> Statistics:
    """Statistics of the channels, from 0 to 1, of that many `images` with a `histogram`; lists [3, 1, 1]."""
    total = counts.sum(axis=1)
    mean = counts @ LEVELS / total
    variance = (counts * (LEVELS - mean[:, None]) ** 2).sum(axis=1) / total
    reached = counts.cumsum(axis=1) / total[:, None]
    present = counts > 0
    values = {
        "min": LEVELS[present.argmax(axis=1)],
        "max": LEVELS[255 - present[:, ::-1].argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(variance),
        **{name: LEVELS[(reached >= share).argmax(axis=1)] for name, share in QUANTILES.items()},
    }
    return {
        **{name: value.reshape(3, 1, 1).tolist() for name, value in values.items()},
        "count": [images],
    }
