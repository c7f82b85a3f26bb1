"""The stripes along y that both spatulas sweep from outside inwards, beside balls that have to stay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep.workspace import HALF_WIDTH, LIP

CLEAR = 0.01  # m, between a spatula that comes down and the nearest ball
OUTER = 0.25  # m, from the middle line, where a spatula begins to sweep unless balls lie further out
REACH = 0.285  # m, from the middle line, the farthest that one begins to sweep: above, arms fold no further
FARTHEST = 0.16  # m, from the table's middle along x, of a stripe
BESIDE = 0.004  # m, from the end of a spatula to a ball that it holds, or that it passes
# Where in half a stripe's width the ball in front lies: the first place in which there is room.
PLACES = (0.5, 0.75, 0.25, 1.0, 0.0, -0.25, -0.5, -0.75, -1.0)
OUTWARD = np.array([-1.0, 1.0])  # y of each arm's own side


def next_stripe(balls: Array, others: Array, radius: float) -> tuple[float, Array] | None:
    """The x of the next stripe, and how far from the middle line each spatula comes down, [2] (m).

    Of `balls` [N, 3], the one nearest to the camera decides, so that the choice is visible in an image. The
    stripe with the most balls would save few steps, but images do not show ties between stripes: a policy
    cloned from such demonstrations swept the same stripes again and again.

    Spatulas come down inside of the `others` [M, 3], which have to stay. If there is no room for that, the
    stripe shifts; if there is none wherever it holds the ball, the next nearest ball decides. None if there
    is no room for any ball, or no ball.
    """
    near = balls[np.abs(balls[:, 0]) < FARTHEST + held_within(radius)]
    near = near if len(near) else balls
    in_order = near[np.argsort(-near[:, 0])]
    # Without room for all balls that a stripe meets, a spatula may come down on some of them.
    for all_inside in (True, False):
        for front in in_order:
            for x in _stripes(front[0], radius):
                inside = _needed(balls if all_inside else front[None], x, radius)
                outside = _room(others, x, radius)
                if (inside <= outside).all():
                    return x, np.minimum(np.clip(inside.max(), OUTER, REACH), outside)
    return None


def is_sweepable(place: Array, others: Array, radius: float) -> bool:
    """Whether some stripe holds a ball at `place` [2], alone, and none of `others` [M, 2]."""
    return any(
        (_needed(place[None], x, radius) <= _room(others, x, radius)).all()
        for x in _stripes(place[0], radius)
    )


def held_within(radius: float) -> float:
    """How far from a stripe's middle along x the balls are that it holds (m)."""
    return HALF_WIDTH - radius - BESIDE


def _stripes(front: float, radius: float) -> Iterator[float]:
    """The x (m) of stripes that hold a ball at `front`, the first one with other balls behind it."""
    for place in PLACES:
        yield float(np.clip(front - place * held_within(radius), -FARTHEST, FARTHEST))


def _needed(balls: Array, x: float, radius: float) -> Array:
    """How far from the middle line both spatulas come down at `x` to have `balls` [N, 2] inside, [2] (m)."""
    return _outwards(balls, x, radius, BESIDE).max(axis=0, initial=0.0) + radius + CLEAR + LIP


def _room(others: Array, x: float, radius: float) -> Array:
    """How far from the middle line they may come down, inside of `others` [M, 2], [2] (m)."""
    outwards = _outwards(others, x, radius, 2 * BESIDE)
    return np.where(outwards > 0, outwards, np.inf).min(axis=0, initial=np.inf) - radius - CLEAR


def _outwards(balls: Array, x: float, radius: float, gap: float) -> Array:
    """Distances [N, 2] to each arm's own side of those of `balls` that its spatula meets at `x`."""
    met = np.abs(balls[:, 0] - x) < HALF_WIDTH + radius + gap
    return balls[met][:, 1, None] * OUTWARD
