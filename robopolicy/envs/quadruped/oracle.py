"""The oracle: it reads the places of the stones and plans the next footholds.

A trot lifts two diagonal feet in each half period. Where they land by default follows from the place and the
speed of the base, and every landing changes both: feet that land ahead slow the robot down. The oracle
predicts this with a linear model, and chooses the footholds that keep the coming landings inside the stones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from robopolicy.control.controller import Controller
from robopolicy.control.gait import raibert_offset
from robopolicy.envs.physics.base import Array

PULL = 1.0  # cost of a metre between a landing and its shift: each shift leads to a landing near it
NOWHERE = 100.0  # cost of a landing with no stone in reach


@dataclass(frozen=True)
class OracleConfig:
    """How the oracle plans. Lengths in metres."""

    half_periods: int = 6  # of a plan, with two landings each
    shifts: int = 7  # common shifts of two landings that a plan tries, from the largest back to ahead
    kept: int = 200  # best plans that are continued
    margin: float = 0.06  # from a foothold to the edge of its stone
    edge: float = 2.0  # cost of a landing on an edge
    power: float = 4.0  # of the share of the margin that is missing, in this cost
    effort: float = 0.08  # cost of a metre of foothold offset, as in the reward


class _Costs(NamedTuple):
    largest: float
    aside: float
    margin: float
    edge: float
    power: float
    effort: float


def foothold_offsets(
    walker: Controller, stones: Array, largest: float, aside: float, config: OracleConfig
) -> Array:
    """Offsets [4, 2] (m, ahead and to the left) of the feet that lift off now; 0 for the others.

    stones: [S, 5], start, end and slope of each stone's ends (m along the middle of the row), and its right
    and left side (m). Offsets are at most `largest` along x and `aside` along y.
    """
    lifting = walker.lifting()
    offsets = np.zeros((4, 2))
    if not lifting.any():
        return offsets
    reading, settings, trot = walker.reading, walker.config, walker.robot.trot
    times = walker.time + settings.gait.period / 2 * np.arange(config.half_periods + 1)
    desired = settings.speed * np.minimum(1.0, times / settings.ramp)
    hips = walker.hips_world()
    place, speed = reading.position[0], reading.velocity[0]
    legs = np.stack([hips[:, 0] - place, hips[:, 1] + walker.robot.legs.plane], axis=1)
    if aside:  # else stones reach across the course
        legs[lifting, 1] += walker.sway()
    feet = np.stack([np.flatnonzero(lifting), np.flatnonzero(~lifting)])  # the pairs, in turns
    first = _plan(
        place,
        speed,
        reading.feet_world[feet[1], 0].mean(),
        desired,
        legs[feet],
        stones,
        np.linspace(-largest, largest, config.shifts),
        config.kept,
        np.array([settings.gait.swing, settings.gait.stance, settings.swing.capture, trot.overshoot]),
        np.array(trot.progress),
        np.array(trot.speed),
        _Costs(largest, aside, config.margin, config.edge, config.power, config.effort),
    )
    offsets[feet[0]] = first
    return offsets


def shifted(stones: Array, ahead: float, left: float) -> Array:
    """The `stones` [S, 5] of `foothold_offsets`, moved (m): where they seem to be by a misplaced base."""
    start, end, slope, right, side = stones.T
    ahead = ahead + slope * left
    return np.stack([start + ahead, end + ahead, slope, right + left, side + left], axis=1)


@numba.njit(cache=True)
def _plan(
    place: float,
    speed: float,
    standing: float,
    desired: Array,
    legs: Array,
    stones: Array,
    shifts: Array,
    kept: int,
    timing: Array,
    progress: Array,
    speeds: Array,
    costs: _Costs,
) -> Array:
    """The first offsets [2, 2] (m) of the best plan.

    place, speed: of the base along x; standing: mean place of the standing feet; desired: speeds [H + 1];
    progress, speeds: see `control.robot.Trot`. legs: [2, 2, 2], both pairs of feet, how far ahead of the base
    their hips are, and y of their landings.
    """
    swing, stance, capture, overshoot = timing
    # One row for each plan: place, speed, mean place of the standing feet, cost; and its first offsets.
    plans, firsts = np.array([[place, speed, standing, 0.0]]), np.zeros((1, 2, 2))
    for step in range(len(desired) - 1):
        now, later = desired[step], desired[step + 1]
        count = len(plans) * len(shifts)
        following, offsets = np.empty((count, 4)), np.empty((count, 2, 2))
        for row in range(len(plans)):
            x, v, rest, cost = plans[row]
            ahead = x + raibert_offset(v, now, swing, stance, capture) + overshoot
            for column in range(len(shifts)):
                index, total, landing = row * len(shifts) + column, cost, 0.0
                for foot in range(2):
                    reach, y = legs[step % 2, foot]
                    dx, dy, added = _landing(ahead + reach, y, shifts[column], stones, costs)
                    offsets[index, foot, 0], offsets[index, foot, 1] = dx, dy
                    total += added
                    landing += (ahead + reach + dx) / 2
                moved = progress[0] * v + progress[1] * (rest - x) + progress[2] * now + progress[3] * later
                faster = speeds[0] * v + speeds[1] * (rest - x) + speeds[2] * (landing - x)
                faster += speeds[3] * now + speeds[4] * later
                following[index] = np.array([x + moved, faster, landing, total])
        best = np.argsort(following[:, 3], kind="mergesort")[:kept]
        plans = following[best]
        firsts = offsets[best] if step == 0 else firsts[best // len(shifts)]
    return firsts[0]


@numba.njit(cache=True)
def _landing(x: float, y: float, shift: float, stones: Array, costs: _Costs) -> tuple[float, float, float]:
    """Offsets along x and y (m) from (x, y) to the best place near `shift`, and their cost."""
    best, chosen = np.inf, (0.0, 0.0, NOWHERE)
    for stone in range(len(stones)):
        start, end, slope, right, left = stones[stone]
        start, end = start - slope * y, end - slope * y
        if start > x + costs.largest + costs.margin or end < x - costs.largest - costs.margin:
            continue
        dx = _inside(x + shift, start, end, costs.margin) - x
        dx = min(max(dx, -costs.largest), costs.largest)
        dy = _inside(y, right, left, costs.margin) - y
        dy = min(max(dy, -costs.aside), costs.aside)
        room = min(min(x + dx - start, end - x - dx), min(y + dy - right, left - y - dy))
        missing = max(0.0, 1.0 - room / costs.margin)
        cost = costs.edge * missing**costs.power + costs.effort * (abs(dx) + abs(dy))
        if cost + PULL * abs(dx - shift) < best:
            best, chosen = cost + PULL * abs(dx - shift), (dx, dy, cost)
    return chosen


@numba.njit(cache=True)
def _inside(place: float, low: float, high: float, margin: float) -> float:
    """The nearest place with `margin` to both ends, or the middle between ends that are too near."""
    if high - low < 2 * margin:
        return (low + high) / 2
    return min(max(place, low + margin), high - margin)
