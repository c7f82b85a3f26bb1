"""Running statistics of observations, which all workers share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.training.rollout import Episode, Moments

LEAST_DEVIATION = 1e-2  # what hardly ever moves is not to be blown up


class Normaliser(NamedTuple):
    """Moments of every watched observation over all training episodes so far, in float64.

    They are added up in the order of candidates and seeds, so that a sum has the same bits for any number of
    workers.
    """

    moments: dict[str, Moments]

    @staticmethod
    def empty(sizes: dict[str, int]) -> Normaliser:
        """Of vectors of these `sizes`, nothing seen yet."""
        return Normaliser({name: Moments(0, np.zeros(k), np.zeros(k)) for name, k in sizes.items()})

    def after(self, episodes: Iterable[Sequence[Episode]]) -> Normaliser:
        """With these episodes added, but for those that saw a number that is not finite."""
        moments = dict(self.moments)
        for row in episodes:
            for episode in row:
                for name, (number, total, squares) in moments.items():
                    seen = episode.seen[name]
                    if not (np.isfinite(seen.total).all() and np.isfinite(seen.squares).all()):
                        continue
                    moments[name] = Moments(number + seen.number, total + seen.total, squares + seen.squares)
        return Normaliser(moments)

    def vector(self) -> NDArray[np.float32] | None:
        """Shift and scale of every observation in turn [2K], as `policies.base.with_normaliser` reads them.

        None where nothing is normalised.
        """
        return np.concatenate([*self.features("").values()]) if self.moments else None

    def features(self, prefix: str) -> dict[str, NDArray[np.float32]]:
        """Shift and scale [K] of every observation, by path among a policy's features."""
        found = {}
        for name, (number, total, squares) in self.moments.items():
            mean, scale = np.zeros_like(total), np.ones_like(total)
            if number:
                mean = total / number
                deviation = np.sqrt(np.maximum(squares / number - mean**2, 0.0))
                scale = 1.0 / np.maximum(deviation, LEAST_DEVIATION)
            found[f"{prefix}normaliser/{name}/shift"] = mean.astype(np.float32)
            found[f"{prefix}normaliser/{name}/scale"] = scale.astype(np.float32)
        return found

    def arrays(self, prefix: str) -> dict[str, NDArray[np.float64]]:
        """As a checkpoint holds it."""
        return {
            f"{prefix}{name}/{part}": np.asarray(value, np.float64)
            for name, moments in self.moments.items()
            for part, value in moments._asdict().items()
        }

    def restored(self, arrays: dict[str, NDArray[np.float64]], prefix: str) -> Normaliser:
        """What `arrays` wrote down, for observations like these. Raises KeyError where it is not there."""
        return Normaliser(
            {
                name: Moments(
                    int(arrays[f"{prefix}{name}/number"]),
                    arrays[f"{prefix}{name}/total"],
                    arrays[f"{prefix}{name}/squares"],
                )
                for name in self.moments
            }
        )
