"""A demonstrator that reads the places of the balls: it sweeps a stripe and drops it into a bowl."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep.stripes import OUTWARD, next_stripe
from robopolicy.envs.sweep.workspace import LIP, Target

if TYPE_CHECKING:
    from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep

FLOOR = 0.0015  # m, of a spatula that sweeps
OVER = 0.13  # m, of one that travels above balls and bowls
DROP = 0.075  # m, of one that opens over a bowl
TIP = 0.35  # rad, of spatulas that are emptied
PART = 0.055  # m, that each moves aside then: the arms above them lean towards each other
NEAR = 0.006  # m and rad
PATIENCE = 8  # steps of waiting for a spatula whose target has arrived
LONGEST_WAIT = 40  # steps on the way to any goal
SWEEP_SPEED = 0.6  # share of the fastest


class Demonstrated(NamedTuple):
    """An action [12] as executed, with noise, and as intended, which policies learn."""

    executed: NDArray[np.float32]
    intended: NDArray[np.float32]


class Demonstrator:
    """Plays one episode of an environment that has been reset; the same seed gives the same actions.

    noise: standard deviation of the noise in every action, so that demonstrations show recoveries.
    """

    def __init__(self, env: BimanualSweep, seed: int = 0, noise: float = 0.0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"noise is {noise!r}: it must be a number from 0 to 1")
        self._env = env
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._plan = self._work()
        self._goal, self._speed = env.target, 1.0
        self._waited = 0

    def act(self) -> Demonstrated:
        """The next action."""
        if self._arrived():
            self._goal, self._speed = next(self._plan)
            self._waited = 0
        env, config = self._env, self._env.config
        moves = (self._goal.positions - env.target.positions) / config.largest_move
        turns = (self._goal.turns - env.target.turns) / config.largest_turn
        # Both arms slow down alike, so that what they hold between them stays there.
        largest = max(np.abs(moves).max(), np.abs(turns).max()) / self._speed
        action = (np.concatenate([moves, turns], axis=1) / max(1.0, largest)).ravel().astype(np.float32)
        noise = (self._noise * self._random.standard_normal(action.shape)).astype(np.float32)
        return Demonstrated(np.clip(action + noise, -1.0, 1.0), np.clip(action, -1.0, 1.0))

    def _arrived(self) -> bool:
        config = self._env.config
        # Noise alone keeps the largest of its six entries this far from the goal, most of the time.
        aside = 2.5 * self._noise * config.largest_move
        ahead = np.abs(self._goal.positions - self._env.target.positions).max() - aside
        there = np.abs(self._goal.positions - self._env.physics.tools()[0]).max() - aside
        turned = np.abs(self._goal.turns - self._env.target.turns).max()
        ahead = max(ahead, turned - 2.5 * self._noise * config.largest_turn)
        self._waited += 1
        return bool(
            max(ahead, there) < NEAR or (ahead < NEAR and self._waited > PATIENCE) or self._waited > 40
        )

    def _work(self) -> Iterator[tuple[Target, float]]:
        """Each next goal, and its share of the fastest speed."""
        while True:
            stripe = next_stripe(self._loose(), self._others(), self._env.config.ball_radius)
            if stripe is None:
                yield self._pose(0.0, 0.0, OVER, self._env.config.start[1]), 1.0
                continue
            x, outer = stripe
            here = self._env.target.positions
            yield Target(np.column_stack([here[:, :2], [OVER, OVER]]), np.zeros((2, 3))), 1.0
            yield self._pose(x, 0.0, OVER, outer), 1.0
            yield self._pose(x, 0.0, FLOOR, outer), 1.0
            closed = LIP + self._env.config.workspace.gap / 2
            yield self._pose(x, 0.0, FLOOR, closed), SWEEP_SPEED
            yield self._pose(x, 0.0, OVER, closed), 1.0
            bowl = min(self._env.config.bowls, key=lambda b: abs(b.center[0] - x))
            yield self._pose(*bowl.center, OVER, closed), 1.0
            yield self._pose(*bowl.center, DROP, closed), 1.0
            yield self._pose(*bowl.center, DROP, closed + PART, TIP), 1.0
            yield self._pose(*bowl.center, OVER, closed + PART, TIP), 1.0

    def _loose(self) -> Array:
        """Balls [N, 3] that lie neither in a bowl nor off the table."""
        return self._env.balls[~self._env.held.any(axis=1) & (self._env.balls[:, 2] > 0)]

    def _others(self) -> Array:
        """Balls [M, 3] on the table that have to stay."""
        return self._env.others[self._env.others[:, 2] > 0]

    def _pose(self, x: float, y: float, z: float, apart: float | Array, tip: float = 0.0) -> Target:
        """Spatulas `apart` from y on either side, their lips tipped down by `tip`; `apart` may be [2]."""
        positions = np.column_stack([[x, x], y + apart * OUTWARD, [z, z]])
        return Target(positions, np.column_stack([tip * OUTWARD, np.zeros((2, 2))]))
