"""The simulated robot that a bundle drives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.task import task_of

STANDING = 1.0  # s of simulation after a safe stop
REHEARSED = 12  # steps: past the first feet that lift off and land


class SimulatedRobot:
    """A task's environment as the runtime's `Robot`, with commands in physical units.

    Attributes:
      info: the last `info` of the environment.
      total: the return so far.
      stopped: whether a safe stop ended the episode.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], manifest: Mapping[str, Any]) -> None:
        self._env = env
        self._names = list(manifest["inputs"])
        self._scale = np.array(manifest["outputs"]["command"]["scale"], np.float32)
        self._period = float(manifest["control_period"])
        self._task = task_of(env)
        self._done = True

    def begin(self, seed: int) -> None:
        """Begin an episode."""
        self._observation, self.info = self._env.reset(seed=seed)
        self._last = 0.0 * self._scale
        self._done, self.stopped, self.total = False, False, 0.0

    def rehearse(self, seed: int) -> None:
        """Act for some steps and stop, so that nothing is compiled in real time."""
        self.begin(seed)
        for _ in range(REHEARSED):
            if not self._done:
                self.hold()
        self.stop("it was a rehearsal")

    def finished(self) -> bool:
        """Whether the episode has ended."""
        return self._done

    def observe(self) -> dict[str, NDArray[Any]]:
        """The current readings."""
        return {name: self._observation[name] for name in self._names}

    def act(self, command: NDArray[np.float32]) -> None:
        """Apply `command` for a control period."""
        self._last = command / self._scale
        self._step(self._last)

    def hold(self) -> None:
        """A control period without a command: with the last one or zeros, as the task declares."""
        self._step(self._last if self._task.holds_last_action else 0.0 * self._scale)

    def stop(self, reason: str) -> None:
        """Come to rest for `STANDING` without the policy."""
        if self._done:
            return
        self.stopped = True
        self._task.halt()
        for _ in range(round(STANDING / self._period)):
            if not self._done:
                self._step(0.0 * self._scale)
        after = f", then {self.info['cause']}" if self._done else ""
        self.info = {**self.info, "cause": f"stopped: {reason}{after}"}
        self._done = True

    def _step(self, action: NDArray[np.float32]) -> None:
        self._observation, reward, ended, cut, self.info = self._env.step(action)
        self.total += float(reward)
        self._done = ended or cut
