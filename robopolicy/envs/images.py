"""Depth images for the convolutional policies of other libraries."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict
from numpy.typing import NDArray

from robopolicy.envs.contract import has_reach, is_depth

TIMES = 2  # the usual convolutions need 36 pixels a side: 24 x 32 pixels become 48 x 64

Observation = dict[str, Any]


class DepthImages(
    gymnasium.ObservationWrapper[Observation, NDArray[np.float32], Observation],
    gymnasium.utils.RecordConstructorArgs,
):
    """Depth images, [24, 32] (m) by default, as grey images [48, 64, 1] (uint8); the rest stays as it is.

    The last axis is the channel. 0 means no reading, 255 the camera's reach. Every pixel is repeated
    2 x 2 times. Raises ValueError for an environment whose observations hold no depth image, and for an image
    without a finite reach above 0.
    """

    def __init__(self, env: gymnasium.Env[Observation, NDArray[np.float32]]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        spaces: dict[str, gymnasium.Space[Any]] = space.spaces if isinstance(space, Dict) else {}
        depths = {name: box for name, box in spaces.items() if isinstance(box, Box) and is_depth(box)}
        if not depths:
            names = ", ".join(spaces) or type(space).__name__
            raise ValueError(
                f"env observes {names}: it must observe depth images [rows, columns] from 0 m, by name"
            )
        for name, box in depths.items():
            if not has_reach(box):
                raise ValueError(
                    f"env observes {name!r} as {box}: it must have pixels, each with a finite high above 0"
                )
        self._reach: dict[str, NDArray[Any]] = {name: box.high for name, box in depths.items()}
        images = {
            name: Box(0, 255, (TIMES * high.shape[0], TIMES * high.shape[1], 1), np.uint8)
            for name, high in self._reach.items()
        }
        self.observation_space = Dict({**spaces, **images})

    def observation(self, observation: Observation) -> Observation:
        """The observation with grey images in the place of its depth images."""
        images = {}
        for name, reach in self._reach.items():
            grey = np.rint(255 * observation[name] / reach).astype(np.uint8)
            images[name] = grey.repeat(TIMES, 0).repeat(TIMES, 1)[..., None]
        return {**observation, **images}
