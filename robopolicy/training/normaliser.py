"""Running statistics of observations, common to all workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.rollout import Episode, Moments

LEAST_DEVIATION = 1e-2  # so that noise of a nearly constant observation is not amplified


class Normaliser(NamedTuple):
    """Moments of every watched observation over all training episodes so far, in float64.

    Sums run in the order of candidates and seeds, so their bits do not depend on the number of workers.
    """

    moments: dict[str, Moments]

    @staticmethod
    def empty(sizes: Mapping[str, int]) -> Normaliser:
        """For vectors of these `sizes`, without observations."""
        return Normaliser({name: Moments(0, np.zeros(k), np.zeros(k)) for name, k in sizes.items()})

    def after(self, episodes: Iterable[Sequence[Episode]]) -> Normaliser:
        """With the moments of these episodes added, except those that are not finite."""
        moments = dict(self.moments)
        for episode in (episode for row in episodes for episode in row):
            for name, sums in moments.items():
                seen = episode.moments[name]
                if np.isfinite(seen.total).all() and np.isfinite(seen.squares).all():
                    moments[name] = Moments(
                        sums.number + seen.number, sums.total + seen.total, sums.squares + seen.squares
                    )
        return Normaliser(moments)

    def vector(self) -> NDArray[np.float32] | None:
        """Shift and scale of every observation in turn [2K], for `policies.base.with_normaliser`.

        None if the policy normalises nothing.
        """
        return np.concatenate([*self.features("").values()]) if self.moments else None

    def features(self, prefix: str) -> dict[str, NDArray[np.float32]]:
        """Shift and scale [K] of every observation, by path among a policy's features."""
        features = {}
        for name, (number, total, squares) in self.moments.items():
            mean, scale = np.zeros_like(total), np.ones_like(total)
            if number:
                mean = total / number
                deviation = np.sqrt(np.maximum(squares / number - mean**2, 0.0))
                scale = 1.0 / np.maximum(deviation, LEAST_DEVIATION)
            features[f"{prefix}normaliser/{name}/shift"] = mean.astype(np.float32)
            features[f"{prefix}normaliser/{name}/scale"] = scale.astype(np.float32)
        return features

    def arrays(self, prefix: str) -> dict[str, NDArray[np.float64]]:
        """The arrays of a checkpoint."""
        return {
            f"{prefix}{name}/{part}": np.asarray(value, np.float64)
            for name, moments in self.moments.items()
            for part, value in moments._asdict().items()
        }

    def restored(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> Normaliser:
        """The statistics of the same observations in `arrays`. Raises KeyError if they are missing."""
        moments = {}
        for name in self.moments:
            number, total, squares = (arrays[f"{prefix}{name}/{part}"] for part in Moments._fields)
            moments[name] = Moments(int(number), total, squares)
        return Normaliser(moments)
