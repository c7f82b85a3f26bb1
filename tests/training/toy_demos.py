"""A small environment with a demonstrator, importable by recorders. Every third seed fails."""

import time
from pathlib import Path
from typing import ClassVar, NamedTuple

import gymnasium
import numpy as np

from robopolicy.envs.task import Outcome

ID = "toy_demos:Demos-v0"
SIZE = 40


class Action(NamedTuple):
    executed: np.ndarray
    intended: np.ndarray
    unsolved: str


class Demos(gymnasium.Env):
    """An image of the seed's noise that grows brighter; the demonstrator adds its noise to zeros."""

    observation_space: ClassVar = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (SIZE, SIZE, 3), np.uint8),
            "poses": gymnasium.spaces.Box(-1, 1, (14,), np.float32),
        }
    )
    action_space: ClassVar = gymnasium.spaces.Box(-1, 1, (12,), np.float32)

    outcomes = (Outcome("fraction_in_bowls", "in bowls", "{:7.1%}", "{:.0%} in bowls"),)

    def __init__(
        self,
        seconds: float = 0.0,
        raises: int = -1,
        hopeless: bool = False,
        unsolved: int = 0,
        closed: str = "",
    ) -> None:
        self._seconds, self._raises, self._hopeless = seconds, raises, hopeless
        self._unsolved, self._closed = unsolved, closed

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed == self._raises:
            raise RuntimeError("the toy is broken")
        self._given, self._steps = seed, 0
        return self._seen(), self._info()

    def step(self, action):
        time.sleep(self._seconds)
        self._steps += 1
        ended = self._steps == 4 + self._given % 3
        return self._seen(), 0.5, ended, False, self._info()

    def close(self):
        if self._closed:
            with Path(self._closed).open("a") as file:
                file.write("closed\n")

    def demonstrator(self, seed, noise):
        rng = np.random.default_rng(seed)
        unsolved = "all is lost" if self._unsolved and seed % self._unsolved == self._unsolved - 1 else ""

        class Player:
            def act(self):
                intended = np.zeros(12, np.float32)
                executed = (intended + noise * rng.uniform(-1, 1, 12)).astype(np.float32)
                return Action(executed, intended, unsolved)

        return Player()

    def _seen(self):
        image = self.np_random.integers(0, 100, (SIZE, SIZE, 3), np.uint8) + np.uint8(10 * self._steps)
        return {"image": image, "poses": np.full(14, self._steps / 10, np.float32)}

    def _info(self):
        failed = self._hopeless or self._given % 3 == 2
        return {"fraction_in_bowls": 0.5 if failed else 1.0, "spilled": 0, "success": not failed}


gymnasium.register(id="Demos-v0", entry_point="toy_demos:Demos")
