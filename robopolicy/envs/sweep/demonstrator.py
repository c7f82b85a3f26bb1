"""A demonstrator that reads the places of the balls: it sweeps a stripe and drops it into a bowl.

The action that it intends depends on the present poses of the spatulas and the places of the balls, apart
from the way back of an arm out of reach. So a policy can learn when a phase ends, and labels do not depend on
earlier actions.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep.stripes import CLEAR, FARTHEST, OUTWARD, REACH, held_within, next_stripe
from robopolicy.envs.sweep.workspace import HALF_WIDTH, LIP, Target
from robopolicy.settings import check_count, check_number

if TYPE_CHECKING:
    from robopolicy.envs.sweep.bimanual_sweep import BimanualSweep

GAIN = 0.5  # share of a spatula's way to its goal by which an action moves its target, which leads it
BELOW = -0.03  # m, goal of a spatula on the table, under it: actions do not fade before it arrives
BEYOND = 0.02  # m, by which the goals of spatulas that close overlap, for the same reason
OVER = 0.13  # m, of one that travels above balls and bowls
HIGH = 0.1  # m, above which a spatula travels at full speed
CLEARS = 0.055  # m, below which it only rises: balls and the walls of bowls are lower
LOW = 0.03  # m, below which it stands beside balls and not above them
PINCHING = 0.06  # m, goal of spatulas that pinch a ball: they rise as they close
DOWN = 0.012  # m, below which it begins to sweep
DROP = 0.075  # m, of one that opens over a bowl
OPENING = (0.045, 0.095)  # m, heights above which it is in a bowl, and below which it opens there
TIP = 0.35  # rad, of spatulas that are emptied
TIPPED = 0.1  # rad, above which spatulas count as tipped
PART = 0.055  # m, that each moves aside then: the arms above them lean towards each other
NEAR = 0.015  # m, beside its goal, from which a spatula that travels may go down
FUNNEL = 0.3  # m for a metre, by which NEAR grows on the way down
FUNNEL_TOP = 0.115  # m, below which it grows over a stripe
BEGUN = 0.025  # m, from its outer place, beyond which a spatula has begun to sweep
SHIFT = 0.03  # m, that a stripe may lie beside spatulas that sweep it
OVER_BOWL = 0.06  # m, from its middle
BESIDE_BOWL = 0.15  # m, from its middle: balls that fall off a spatula there fall beside it
SWEEP_SPEED = 0.5  # share of the fastest
AJAR = 0.04  # m, between the lips of spatulas that hold balls on the table, which would fall through
SHUT = 0.006  # m, between the lips of spatulas that have closed
PINCHED = 0.005  # m, wider than a ball, between lips that may pinch one
PATIENCE = 8  # steps with an arm out of reach
ARRIVED = 0.2  # of the fastest, the largest move or turn to the first pose that ends the way back
SMALL = 0.05  # of the fastest, a move that frees no arm
HOPELESS = 10  # steps without a ball in reach, after which none rolls back
STRAYING = 5.0  # probability that a stroke goes to a random stripe, for a noise of 1
MOST_STRAYING = 0.5  # the largest such probability
LONGEST_STRAY = 25  # steps: a spatula that comes down on a ball would not reach the table

# Parts of an arm's move and turn: all, the move, the turn, and each number.
PARTS = np.array([[1] * 6, [1] * 3 + [0] * 3, [0] * 3 + [1] * 3, *np.eye(6)], bool)
UPRIGHT = np.zeros((2, 3))


class Demonstrated(NamedTuple):
    """An action [12] as executed, with noise, and as intended, which policies learn.

    `unsolved` is the reason why no action brings another ball into a bowl; "" while one does.
    """

    executed: NDArray[np.float32]
    intended: NDArray[np.float32]
    unsolved: str


class Phase(Enum):
    """What spatulas do, in the order of a sweep."""

    RISE = 0
    TRAVEL = 1
    LOWER = 2
    CLOSE = 3
    LIFT = 4
    CARRY = 5
    REACH_IN = 6
    EMPTY = 7
    LEAVE = 8


ON_THE_WAY = (Phase.RISE, Phase.TRAVEL, Phase.LOWER)  # to the next stripe


class Demonstrator:
    """Plays one episode of an environment that has been reset; the same seed gives the same actions.

    `act` is called once before each step of the environment, whether or not its action is executed.

    noise: standard deviation of the noise in every action, so that demonstrations show recoveries. Some
      strokes then go to a random stripe, at 0.1 and above half of them. Without these, the poses of the
      spatulas tell the next stripe, and clones hardly looked for balls.
    """

    def __init__(self, env: BimanualSweep, seed: int = 0, noise: float = 0.0) -> None:
        check_count("seed", seed, 0, 2**32 - 1)
        check_number("noise", noise, 0.0, 1.0)
        self._env = env
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._hopeless, self._blocked = 0, 0
        self._goes_back = False
        self._stray: tuple[float, Array] | None = None  # a random stripe
        self._on_the_way = 0  # steps on the way to the next stripe
        self._read()

    def act(self) -> Demonstrated:
        """The next action."""
        self._read()
        self._blocked = self._blocked + 1 if self._env.clipped else 0
        self._goes_back |= self._blocked > PATIENCE
        if self._goes_back:
            self._stray, self._on_the_way = None, 0
            intended = executed = self._way_back()
        else:
            phase, goal = self._plan()
            intended = executed = self._towards(phase, goal)
            if stray := self._straying(phase):
                executed = self._towards(*self._sweep(*stray))
        noise = (self._noise * self._random.standard_normal(executed.shape)).astype(np.float32)
        return Demonstrated(np.clip(executed + noise, -1.0, 1.0), intended, self._unsolved())

    def _straying(self, phase: Phase) -> tuple[float, Array] | None:
        """The random stripe to which the spatulas are on the way, if they are."""
        self._on_the_way = self._on_the_way + 1 if phase in ON_THE_WAY else 0
        if not 0 < self._on_the_way <= LONGEST_STRAY or self._places[:, 2].max() < DOWN:
            self._stray = None
        elif self._on_the_way == 1 and self._random.random() < min(STRAYING * self._noise, MOST_STRAYING):
            place = np.array([[self._random.uniform(-FARTHEST, FARTHEST), 0.0, 0.0]])
            self._stray = next_stripe(place, self._others, self._env.config.ball_radius)
        return self._stray

    def _way_to(self, goal: Target) -> tuple[Array, Array]:
        """Moves [2, 3] and turns [2, 3] towards a goal, in units of the fastest."""
        config = self._env.config
        moves = GAIN * (goal.positions - self._places) / config.largest_move
        return moves, GAIN * (goal.turns - self._turns) / config.largest_turn

    def _towards(self, phase: Phase, goal: Target) -> NDArray[np.float32]:
        """The action of a phase towards its goal."""
        return _scaled(*self._way_to(goal), SWEEP_SPEED if phase == Phase.CLOSE else 1.0)

    def _way_back(self) -> NDArray[np.float32]:
        """The action towards the first pose, which frees an arm that is out of reach."""
        moves, turns = self._way_to(self._env.start())
        if max(np.abs(moves).max(), np.abs(turns).max()) < ARRIVED:
            self._goes_back, self._blocked = False, 0
        return _scaled(*self._unblocked(moves, turns), 1.0)

    def _read(self) -> None:
        """Read where spatulas and balls are."""
        env = self._env
        self._places, rotations = env.physics.tools()
        upright = env.workspace.rotations(UPRIGHT)
        self._turns = (Rotation.from_matrix(rotations) * upright.inv()).as_rotvec()
        # Balls [N, 3] that lie neither in a bowl nor off the table, and those that have to stay, [M, 3].
        self._loose = env.balls[~env.held.any(axis=1) & (env.balls[:, 2] > 0)]
        self._others = env.others[env.others[:, 2] > 0]
        self._ajar = float(np.ptp(self._places[:, 1])) - 2 * LIP  # m, between the lips
        self._in_reach = self._stripe_in_reach()

    def _plan(self) -> tuple[Phase, Target]:
        """What to do from here, and where it ends."""
        return self._carry() if self._holds() else self._sweep(*self._stripe())

    def _carry(self) -> tuple[Phase, Target]:
        """Bring the balls that the spatulas hold into a bowl."""
        (x, y), closed, bowl = self._places[:, :2].mean(axis=0), self._closed(), self._bowl()
        lowest, highest = self._places[:, 2].min(), self._places[:, 2].max()
        if lowest < LOW and self._ajar > SHUT:
            pinched = self._ajar < 2 * self._env.config.ball_radius + PINCHED
            return Phase.CLOSE, self._pose(x, y, PINCHING if pinched else BELOW, closed - BEYOND)
        if self._away_from(bowl) < NEAR + FUNNEL * max(0.0, OVER - lowest) and lowest > OPENING[0]:
            if highest > OPENING[1] and not self._tipped():
                return Phase.REACH_IN, self._pose(*bowl, DROP, closed)
            return Phase.EMPTY, self._pose(*bowl, DROP, closed + PART, TIP)
        if lowest < HIGH:
            return Phase.LIFT, self._pose(x, y, OVER, closed)
        return Phase.CARRY, self._pose(*bowl, OVER, closed)

    def _sweep(self, stripe: float, outer: Array) -> tuple[Phase, Target]:
        """Take the balls of a stripe, whose x and outer y of each spatula [2] are given."""
        places = self._places
        x, lowest, highest = places[:, 0].mean(), places[:, 2].min(), places[:, 2].max()
        begin = self._pose(stripe, 0.0, BELOW, outer)
        aside = np.abs(places - begin.positions)[:, :2].max()
        is_here = abs(stripe - x) < SHIFT
        is_down = highest < (DOWN if aside < BEGUN else LOW)
        if is_down and (self._between() or (is_here and self._ajar > SHUT)):
            return Phase.CLOSE, self._pose(stripe if is_here else x, 0.0, BELOW, self._closed() - BEYOND)
        if aside < NEAR + FUNNEL * max(0.0, FUNNEL_TOP - highest):
            return Phase.LOWER, begin
        if lowest < HIGH:
            away = self._away_from(self._bowl())
            leaves = self._tipped() and away < OVER_BOWL
            turns = self._pose(0.0, 0.0, 0.0, 0.0, TIP).turns if leaves else UPRIGHT
            # If it only rose, a clone with a small error in the stripe would stay above it.
            share = np.clip((lowest - CLEARS) / (HIGH - CLEARS), 0.0, 1.0) if away > BESIDE_BOWL else 0.0
            aboves = places[:, :2] + share * (begin.positions - places)[:, :2]
            above = Target(np.column_stack([aboves, [OVER, OVER]]), turns)
            return Phase.LEAVE if leaves else Phase.RISE, above
        return Phase.TRAVEL, self._pose(stripe, 0.0, OVER, outer)

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

    def _closed(self) -> float:
        """How far from the middle line spatulas are that have closed (m)."""
        return LIP + self._env.config.workspace.gap / 2

    def _bowl(self) -> tuple[float, float]:
        """The place of the bowl that is nearest to the spatulas."""
        x, y = self._places[:, :2].mean(axis=0)
        places = (bowl.center for bowl in self._env.config.bowls)
        return min(places, key=lambda place: float(np.hypot(place[0] - x, place[1] - y)))

    def _away_from(self, bowl: tuple[float, float]) -> float:
        """How far the middle between the spatulas is from a bowl's, along x or y (m)."""
        return float(np.abs(self._places[:, :2].mean(axis=0) - bowl).max())

    def _tipped(self) -> bool:
        return bool(np.abs(self._turns[:, 0]).min() > TIPPED)

    def _within(self, width: float) -> NDArray[np.bool_]:
        """Which of the loose balls [N] lie within `width` of the spatulas along x."""
        return np.abs(self._loose[:, 0] - self._places[:, 0].mean()) < width

    def _between(self) -> bool:
        """Whether a ball lies between spatulas that are open."""
        y = self._places[:, 1]
        between = np.abs(self._loose[:, 1] - y.mean()) < np.ptp(y) / 2 - LIP
        return bool((self._within(HALF_WIDTH) & between).any())

    def _holds(self) -> bool:
        """Whether balls lie between spatulas that are closed around them."""
        radius, loose = self._env.config.ball_radius, self._loose
        (_, left, low), (_, right, high) = self._places
        inside = (loose[:, 1] > left) & (loose[:, 1] < right) & self._within(HALF_WIDTH + radius)
        inside &= (loose[:, 2] > min(low, high) - radius) & (
            loose[:, 2] < max(low, high) + HALF_WIDTH + radius
        )
        lifted = loose[:, 2] > 2 * radius + AJAR
        return bool((inside & ((self._ajar < AJAR) | (lifted & (self._ajar < 2 * AJAR)))).any())

    def _unsolved(self) -> str:
        """Why no ball can be brought into a bowl any more; "" if one can."""
        self._hopeless = 0 if self._in_reach or self._holds() else self._hopeless + 1
        return "no ball is left that both spatulas can take" if self._hopeless > HOPELESS else ""

    def _stripe_in_reach(self) -> tuple[float, Array] | None:
        """The next stripe that both spatulas can take: its x, and the y where each comes down, [2].

        Balls too far to the left or right are in the way, as those that have to stay: a spatula that comes
        down on one does not reach the table.
        """
        radius, (x, y) = self._env.config.ball_radius, np.abs(self._loose[:, :2]).T
        far = y >= REACH - LIP - CLEAR - radius
        if not (~far & (x < FARTHEST + held_within(radius))).any():
            return None
        return next_stripe(self._loose[~far], np.concatenate([self._others, self._loose[far]]), radius)

    def _stripe(self) -> tuple[float, Array]:
        """The next stripe, also one that only moves balls that are out of reach."""
        return (
            self._in_reach
            or next_stripe(self._loose, self._others, self._env.config.ball_radius)
            or (0.0, np.full(2, self._env.config.start[1]))
        )

    def _pose(self, x: float, y: float, z: float, apart: float | Array, tip: float = 0.0) -> Target:
        """Spatulas `apart` from y on either side, their lips tipped down by `tip`; `apart` may be [2]."""
        positions = np.column_stack([[x, x], y + apart * OUTWARD, [z, z]])
        return Target(positions, np.column_stack([tip * OUTWARD, np.zeros((2, 2))]))


def _scaled(moves: Array, turns: Array, speed: float) -> NDArray[np.float32]:
    """An action [12] of moves [2, 3] and turns [2, 3] in units of the fastest, at a share `speed` of it.

    Both arms slow down alike, so that what they hold between them stays there.
    """
    largest = max(np.abs(moves).max(), np.abs(turns).max()) / speed
    action = np.concatenate([moves, turns], axis=1) / max(1.0, largest)
    return np.clip(action.ravel(), -1.0, 1.0).astype(np.float32)
