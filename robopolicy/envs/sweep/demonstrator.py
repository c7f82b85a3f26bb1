"""A demonstrator that reads the places of the balls: it sweeps a stripe and drops it into a bowl.

It also labels episodes that a policy plays: it keeps to its plan as long as the plan fits what it finds, and
otherwise begins anew from there.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep.stripes import CLEAR, FARTHEST, OUTWARD, REACH, held_within, next_stripe
from robopolicy.envs.sweep.workspace import HALF_WIDTH, LIP, Target

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
TOLERANCE = 2.5  # noise alone keeps the largest of its six entries this far from a goal, most of the time
STRAYING = 0.1  # of the fastest, the largest deviation that makes goals wider
STALE = 0.02  # m, that the next stripe may shift on the way to it
ASTRAY = 0.04  # m, beside the goal's place, or below its height, where its plan no longer fits
LOW = 0.03  # m, below which a spatula stands beside balls and not above them
AJAR = 0.04  # m, between the lips of spatulas that hold balls on the table, which would fall through
SMALL = 0.05  # of the fastest, a move that frees no arm
HOPELESS = 10  # steps without a ball in reach, after which none rolls back

# Parts of an arm's move and turn: all, the move, the turn, and each number.
PARTS = np.array([[1] * 6, [1] * 3 + [0] * 3, [0] * 3 + [1] * 3, *np.eye(6)], bool)


class Demonstrated(NamedTuple):
    """An action [12] as executed, with noise, and as intended, which policies learn.

    `unsolved` is the reason why no action brings another ball into a bowl; "" while one does.
    """

    executed: NDArray[np.float32]
    intended: NDArray[np.float32]
    unsolved: str


class Phase(IntEnum):
    """The phases of the plan, in their order."""

    RISE = 0
    TRAVEL = 1
    LOWER = 2
    CLOSE = 3
    LIFT = 4
    CARRY = 5
    REACH_IN = 6
    EMPTY = 7
    LEAVE = 8
    GO_BACK = 9


NEXT = dict(pairwise(list(Phase)[: Phase.GO_BACK]))


class Demonstrator:
    """Plays one episode of an environment that has been reset; the same seed gives the same actions.

    `act` is called once before each step of the environment, whether or not its action is executed.

    noise: standard deviation of the noise in every action, so that demonstrations show recoveries.
    """

    def __init__(self, env: BimanualSweep, seed: int = 0, noise: float = 0.0) -> None:
        if not 0.0 <= noise <= 1.0:
            raise ValueError(f"noise is {noise!r}: it must be a number from 0 to 1")
        self._env = env
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._expected = env.target.positions
        self._deviation, self._hopeless, self._blocked = 0.0, 0, 0
        self._begin()

    def act(self) -> Demonstrated:
        """The next action."""
        env, config = self._env, self._env.config
        strayed = np.square((env.target.positions - self._expected) / config.largest_move).mean()
        self._deviation = 0.8 * self._deviation + 0.2 * strayed
        self._blocked = self._blocked + 1 if env.clipped else 0
        if self._blocked > PATIENCE and self._phase != Phase.GO_BACK:
            self._enter(Phase.GO_BACK)
        elif self._arrived():
            self._enter(NEXT.get(self._phase, Phase.RISE))
        if not self._fits():
            self._begin()
        goal = self._goal()
        moves = (goal.positions - env.target.positions) / config.largest_move
        turns = (goal.turns - env.target.turns) / config.largest_turn
        if self._phase == Phase.GO_BACK:
            moves, turns = self._unblocked(moves, turns)
        # Both arms slow down alike, so that what they hold between them stays there.
        speed = SWEEP_SPEED if self._phase == Phase.CLOSE else 1.0
        largest = max(np.abs(moves).max(), np.abs(turns).max()) / speed
        action = (np.concatenate([moves, turns], axis=1) / max(1.0, largest)).ravel().astype(np.float32)
        noise = (self._noise * self._random.standard_normal(action.shape)).astype(np.float32)
        intended = np.clip(action, -1.0, 1.0)
        self._expected = env.target.positions + config.largest_move * intended.reshape(2, 6)[:, :3]
        return Demonstrated(np.clip(action + noise, -1.0, 1.0), intended, self._unsolved())

    def _enter(self, phase: Phase) -> None:
        if phase == Phase.RISE:
            self._x, self._outer = self._stripe()
        self._phase, self._waited = phase, 0

    def _begin(self) -> None:
        """Enter the phase that continues from here."""
        places = self._env.physics.tools()[0]
        between = np.abs(self._loose()[:, 1] - places[:, 1].mean()) < np.ptp(places[:, 1]) / 2 - LIP
        if self._holds():
            self._x = float(places[:, 0].mean())
            self._enter(Phase.LIFT)
        elif places[:, 2].max() < LOW and (self._within(HALF_WIDTH) & between).any():
            self._x = float(places[:, 0].mean())
            self._enter(Phase.CLOSE)
        else:
            self._enter(Phase.RISE)

    def _arrived(self) -> bool:
        config, goal = self._env.config, self._goal()
        deviation = max(self._noise, min(float(np.sqrt(self._deviation)), STRAYING))
        ahead = np.abs(goal.positions - self._env.target.positions).max()
        there = np.abs(goal.positions - self._env.physics.tools()[0]).max()
        aside = TOLERANCE * deviation * config.largest_move
        turned = np.abs(goal.turns - self._env.target.turns).max()
        ahead = max(ahead - aside, turned - TOLERANCE * deviation * config.largest_turn)
        self._waited += 1
        return bool(
            max(ahead, there - aside) < NEAR
            or (ahead < NEAR and self._waited > PATIENCE)
            or self._waited > LONGEST_WAIT
        )

    def _unblocked(self, moves: Array, turns: Array) -> tuple[Array, Array]:
        """Of each arm's move [2, 3] and turn [2, 3] the first part that it can make and that is not small."""
        env, rows = self._env, np.clip(np.concatenate([moves, turns], axis=1), -1.0, 1.0)
        for arm in range(2):
            for part in PARTS:
                tried = np.zeros((2, 6))
                tried[arm] = np.where(part, rows[arm], 0.0)
                scaled = env.config.largest_move * tried[:, :3], env.config.largest_turn * tried[:, 3:]
                wanted = env.workspace.moved(env.target, *scaled)
                clipped = env.workspace.follow(env.target, wanted, env.joint_targets)[2]
                if not clipped[arm] and np.abs(tried).max() > SMALL:
                    rows[arm] = tried[arm]
                    break
        return rows[:, :3], rows[:, 3:]

    def _goal(self) -> Target:
        """Where the phase ends."""
        closed = LIP + self._env.config.workspace.gap / 2
        bowl = self._bowl()
        match self._phase:
            case Phase.RISE:
                here = self._env.target.positions
                return Target(np.column_stack([here[:, :2], [OVER, OVER]]), np.zeros((2, 3)))
            case Phase.TRAVEL:
                return self._pose(self._x, 0.0, OVER, self._outer)
            case Phase.LOWER:
                return self._pose(self._x, 0.0, FLOOR, self._outer)
            case Phase.CLOSE:
                return self._pose(self._x, 0.0, FLOOR, closed)
            case Phase.LIFT:
                return self._pose(self._x, 0.0, OVER, closed)
            case Phase.CARRY:
                return self._pose(*bowl, OVER, closed)
            case Phase.REACH_IN:
                return self._pose(*bowl, DROP, closed)
            case Phase.EMPTY:
                return self._pose(*bowl, DROP, closed + PART, TIP)
            case Phase.LEAVE:
                return self._pose(*bowl, OVER, closed + PART, TIP)
            case Phase.GO_BACK:
                return self._env.start()

    def _bowl(self) -> tuple[float, float]:
        """The place of the bowl that is nearest to the stripe."""
        return min(
            (bowl.center for bowl in self._env.config.bowls), key=lambda place: abs(place[0] - self._x)
        )

    def _fits(self) -> bool:
        """Whether the plan can go on from here; it nearly always can where the demonstrator itself acts."""
        places = self._env.physics.tools()[0]
        lowest, highest = places[:, 2].min(), places[:, 2].max()
        aside = np.abs(places - self._goal().positions)[:, :2]
        match self._phase:
            case Phase.RISE | Phase.TRAVEL | Phase.LOWER:
                x, outer = self._stripe()
                stale = abs(x - self._x) > STALE or np.abs(outer - self._outer).max() > STALE
                low = self._phase == Phase.TRAVEL and lowest < OVER - ASTRAY
                astray = self._phase == Phase.LOWER and aside.max() > ASTRAY
                return not (self._holds() or stale or low or astray)
            case Phase.CLOSE:
                return bool(highest < ASTRAY and aside[:, 0].max() < ASTRAY)
            case Phase.LIFT:
                return self._holds()
            case Phase.CARRY:
                return self._holds() and bool(lowest > OVER - ASTRAY)
            case Phase.REACH_IN:
                return self._holds() and bool(aside.max() < ASTRAY)
            case Phase.EMPTY | Phase.LEAVE:
                middle = np.abs(places.mean(axis=0)[:2] - self._bowl()).max()
                return bool(middle < ASTRAY and lowest > DROP - ASTRAY)
            case Phase.GO_BACK:
                return True

    def _loose(self) -> Array:
        """Balls [N, 3] that lie neither in a bowl nor off the table."""
        return self._env.balls[~self._env.held.any(axis=1) & (self._env.balls[:, 2] > 0)]

    def _others(self) -> Array:
        """Balls [M, 3] on the table that have to stay."""
        return self._env.others[self._env.others[:, 2] > 0]

    def _within(self, width: float) -> NDArray[np.bool_]:
        """Which of the loose balls [N] lie within `width` of the spatulas along x."""
        places = self._env.physics.tools()[0]
        return np.abs(self._loose()[:, 0] - places[:, 0].mean()) < width

    def _holds(self) -> bool:
        """Whether balls lie between spatulas that are closed around them."""
        places, radius, loose = self._env.physics.tools()[0], self._env.config.ball_radius, self._loose()
        (_, left, low), (_, right, high) = places
        ajar = right - left - 2 * LIP
        inside = (loose[:, 1] > left) & (loose[:, 1] < right) & self._within(HALF_WIDTH + radius)
        inside &= (loose[:, 2] > min(low, high) - radius) & (
            loose[:, 2] < max(low, high) + HALF_WIDTH + radius
        )
        lifted = loose[:, 2] > 2 * radius + AJAR
        return bool((inside & ((ajar < AJAR) | (lifted & (ajar < 2 * AJAR)))).any())

    def _unsolved(self) -> str:
        """Why no ball can be brought into a bowl any more; "" if one can."""
        loose, radius = self._loose(), self._env.config.ball_radius
        aside = np.abs(loose[:, :2])
        reached = (aside < (FARTHEST + held_within(radius), REACH - LIP - CLEAR - radius)).all(axis=1)
        is_hopeful = (reached.any() and self._next_stripe() is not None) or self._holds()
        self._hopeless = 0 if is_hopeful else self._hopeless + 1
        return "no ball is left that both spatulas can take" if self._hopeless > HOPELESS else ""

    def _next_stripe(self) -> tuple[float, Array] | None:
        return next_stripe(self._loose(), self._others(), self._env.config.ball_radius)

    def _stripe(self) -> tuple[float, Array]:
        """The x of the next stripe, and the y at which the spatulas come down on either side, [2]."""
        return self._next_stripe() or (0.0, np.full(2, self._env.config.start[1]))

    def _pose(self, x: float, y: float, z: float, apart: float | Array, tip: float = 0.0) -> Target:
        """Spatulas `apart` from y on either side, their lips tipped down by `tip`; `apart` may be [2]."""
        positions = np.column_stack([[x, x], y + apart * OUTWARD, [z, z]])
        return Target(positions, np.column_stack([tip * OUTWARD, np.zeros((2, 2))]))
