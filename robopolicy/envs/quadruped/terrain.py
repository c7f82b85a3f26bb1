"""Stepping stones: a row of stones with gaps between them (HRF, Appendix K.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from robopolicy.envs.physics.base import Array, Box
from robopolicy.settings import check_fields, check_interval, check_number

CAMERA_FAR_BEHIND = 2.0  # m of stone behind the start, so that no camera sees its rear edge
BANK = 1.6  # m, half the width of the floor and of painted ground: the cameras do not see its edges


@dataclass(frozen=True)
class TerrainConfig:
    """Stone and gap sizes in metres. Widths, lengths and gaps are the paper's, which does not give the rest.

    With `painted` the ground is solid: the cameras see gaps and touchdowns in gaps count, but no foot can
    fall into one. It is the first stage of a curriculum, and requires level, straight stones.
    """

    width: float = 0.5
    length: tuple[float, float] = (0.5, 0.8)
    gap: tuple[float, float] = (0.10, 0.20)  # along the middle of the row
    height_step: float = 0.0  # largest difference between the tops of two stones
    yaw: float = 0.0  # rad, largest turn of a stone
    depth: float = 0.5  # of the gaps
    first_edge: tuple[float, float] = (0.45, 0.80)  # end of the first stone; the robot starts at 0
    goal: float = 8.0  # distance that ends an episode with success
    painted: bool = False

    def __post_init__(self) -> None:
        check_number("width", self.width, 0.1)
        check_interval("length", self.length, 0.02)
        check_interval("gap", self.gap, 0.0)
        check_number("depth", self.depth, 0.1)
        check_number("height_step", self.height_step, 0.0, self.depth)
        check_interval("first_edge", self.first_edge, 0.1)
        check_number("goal", self.goal, 0.1)
        # The corners of two stones with opposite yaw must not touch.
        check_number("yaw", self.yaw, 0.0, math.atan(self.gap[0] / self.width))
        if self.painted and (self.height_step or self.yaw):
            raise ValueError(
                f"height_step is {self.height_step} and yaw is {self.yaw}: painted stones are level and "
                "straight, both must be 0"
            )
        check_fields(self)


@dataclass(frozen=True)
class ScatteredConfig(TerrainConfig):
    """Small stones in rows across the course, with gaps on all sides; `width` is that of all of them (m)."""

    width: float = 1.2
    length: tuple[float, float] = (0.15, 0.25)
    gap: tuple[float, float] = (0.08, 0.15)
    breadth: tuple[float, float] = (0.15, 0.25)  # of a stone, across the course
    aside: tuple[float, float] = (0.08, 0.15)  # gaps across the course

    def __post_init__(self) -> None:
        super().__post_init__()
        check_interval("breadth", self.breadth, 0.02)
        check_interval("aside", self.aside, 0.0)
        if self.painted or self.height_step or self.yaw:
            raise ValueError(
                f"painted is {self.painted}, height_step {self.height_step} and yaw {self.yaw}: scattered "
                "stones are solid, level and straight"
            )


class Terrain:
    """One random row of stones along x.

    Stone i covers [starts[i], ends[i]] (m) along the middle of the row. Its top is at tops[i] (m), and its
    yaw is yaws[i] (rad). The first stone and the far bank are level and straight.
    """

    def __init__(self, config: TerrainConfig, rng: np.random.Generator) -> None:
        self.config = config
        starts, ends = [-CAMERA_FAR_BEHIND], [rng.uniform(*config.first_edge)]
        while ends[-1] < config.goal + 1.0:
            starts.append(ends[-1] + rng.uniform(*config.gap))
            ends.append(starts[-1] + rng.uniform(*config.length))
        ends[-1] += 3.0  # the far bank, which may begin behind the goal
        self.starts, self.ends = np.array(starts), np.array(ends)
        between = np.ones(len(starts))
        between[[0, -1]] = 0.0
        self.tops = between * config.height_step * rng.uniform(-0.5, 0.5, len(starts))
        self.yaws = between * config.yaw * rng.uniform(-1.0, 1.0, len(starts))

    def edges(self, y: Array) -> tuple[Array, Array]:
        """Start and end of each stone along x (m) at the lateral positions `y` [...], [..., stones]."""
        shift = y[..., None] * np.tan(self.yaws)
        return self.starts - shift, self.ends - shift

    def margin(self, points: Array) -> Array:
        """Distance along x (m) from `points` [..., 2] to the nearest edge: positive on a stone."""
        starts, ends = self.edges(points[..., 1])
        inside = np.minimum(points[..., :1] - starts, ends - points[..., :1])
        return np.asarray(inside.max(axis=-1))

    def rows(self) -> Array:
        """Start, end and slope of the ends, right and left side of each stone, [stones, 5] (m)."""
        half = np.full_like(self.starts, self.config.width / 2)
        return np.stack([self.starts, self.ends, np.tan(self.yaws), -half, half], axis=1)

    def stones(self) -> list[Box]:
        """The visible stones."""
        half_y, floor = self.config.width / 2, -self.config.depth
        # `starts` and `ends` lie on the middle of the row, which crosses a turned stone at an angle.
        halves = (self.ends - self.starts) / 2 * np.cos(self.yaws)
        middles = (self.starts + self.ends) / 2
        rows = zip(middles.tolist(), halves.tolist(), self.tops.tolist(), self.yaws.tolist(), strict=True)
        return [
            Box((x, 0.0, (top + floor) / 2), (half, half_y, (top - floor) / 2), (0.68, 0.8)[i % 2], yaw)
            for i, (x, half, top, yaw) in enumerate(rows)
        ]

    def floor(self) -> Box:
        """The floor of the gaps."""
        middle, half = self._extent()
        return Box((middle, 0.0, -self.config.depth - 0.05), (half, BANK, 0.05), shade=0.3)

    def solids(self) -> list[Box]:
        """The solid boxes: the stones, or one bank if they are painted, and the floor of the gaps."""
        if self.config.painted:
            middle, half = self._extent()
            half_z = self.config.depth / 2
            return [Box((middle, 0.0, -half_z), (half, BANK, half_z)), self.floor()]
        return [*self.stones(), self.floor()]

    def _extent(self) -> tuple[float, float]:
        return (self.starts[0] + self.ends[-1]) / 2, (self.ends[-1] - self.starts[0]) / 2


class ScatteredTerrain(Terrain):
    """Rows of small stones; `starts` and `ends` are those of the rows.

    The first row and the far bank are one stone. `slabs` [stones, 4] has start, end, right and left side (m).
    """

    def __init__(self, config: ScatteredConfig, rng: np.random.Generator) -> None:
        super().__init__(config, rng)
        half, last = config.width / 2, len(self.starts) - 1
        slabs = []
        for row, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            if row in (0, last):
                slabs.append((start, end, -half, half))
                continue
            left = -half - rng.uniform(0.0, config.aside[1])
            while left < half:
                right = left + rng.uniform(*config.aside)
                left = right + rng.uniform(*config.breadth)
                slabs.append((start, end, right, left))
        self.slabs = np.array(slabs)

    def margin(self, points: Array) -> Array:
        """Distance from `points` [..., 2] to the nearest edge: positive on a stone."""
        start, end, right, left = self.slabs.T
        x, y = points[..., :1], points[..., 1:2]
        inside = np.minimum(np.minimum(x - start, end - x), np.minimum(y - right, left - y))
        return np.asarray(inside.max(axis=-1))

    def rows(self) -> Array:
        """See `Terrain`."""
        return np.insert(self.slabs, 2, 0.0, axis=1)

    def stones(self) -> list[Box]:
        """The visible stones."""
        half_z = self.config.depth / 2
        return [
            Box(
                ((start + end) / 2, (right + left) / 2, -half_z),
                ((end - start) / 2, (left - right) / 2, half_z),
                (0.68, 0.8)[i % 2],
            )
            for i, (start, end, right, left) in enumerate(self.slabs.tolist())
        ]


def drawn_terrain(config: TerrainConfig, rng: np.random.Generator) -> Terrain:
    """The random terrain of `config`."""
    if isinstance(config, ScatteredConfig):
        return ScatteredTerrain(config, rng)
    return Terrain(config, rng)
