"""Stepping stones: a row of level stones with gaps between them (HRF, Appendix K.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robopolicy.envs.physics.base import Array, Box

CAMERA_FAR_BEHIND = 2.0  # m of stone behind the start, so that no camera sees its rear edge
BANK = 1.6  # half the width of the floor, and of painted ground, m: beyond what the cameras see


@dataclass(frozen=True)
class TerrainConfig:
    """Stone and gap sizes in metres. Widths, lengths and gaps are those of the paper; the rest is ours.

    `painted` leaves the ground solid: the cameras see the gaps and touchdowns are judged by them, but no
    foot can fall into one. It is the first stage of a curriculum.
    """

    width: float = 0.5
    length: tuple[float, float] = (0.5, 0.8)
    gap: tuple[float, float] = (0.10, 0.20)
    depth: float = 0.5  # of the gaps
    first_edge: tuple[float, float] = (0.45, 0.80)  # where the starting stone ends; the robot starts at 0
    goal: float = 8.0  # distance that counts as crossed
    painted: bool = False


class Terrain:
    """One drawn row of stones along x; stone i covers [starts[i], ends[i]] (m)."""

    def __init__(self, config: TerrainConfig, rng: np.random.Generator) -> None:
        self.config = config
        starts, ends = [-CAMERA_FAR_BEHIND], [rng.uniform(*config.first_edge)]
        while ends[-1] < config.goal + 1.0:
            starts.append(ends[-1] + rng.uniform(*config.gap))
            ends.append(starts[-1] + rng.uniform(*config.length))
        ends[-1] += 3.0  # the far bank: what lies behind the goal is no gap
        self.starts, self.ends = np.array(starts), np.array(ends)

    def margin(self, x: Array) -> Array:
        """Distance (m) from `x` [...] to the nearest stone edge: positive on a stone, negative over a gap."""
        inside = np.minimum(x[..., None] - self.starts, self.ends - x[..., None])
        return inside.max(axis=-1)

    def stones(self) -> list[Box]:
        """The stones as the cameras see them."""
        half_y, half_z = self.config.width / 2, self.config.depth / 2
        edges = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [
            Box(((a + b) / 2, 0.0, -half_z), ((b - a) / 2, half_y, half_z), shade=(0.68, 0.8)[i % 2])
            for i, (a, b) in enumerate(edges)
        ]

    def solids(self) -> list[Box]:
        """What feet stand on: the stones, or one bank where they are painted; and the floor of the gaps."""
        middle, half = (self.starts[0] + self.ends[-1]) / 2, (self.ends[-1] - self.starts[0]) / 2
        floor = Box((middle, 0.0, -self.config.depth - 0.05), (half, BANK, 0.05), shade=0.3)
        if self.config.painted:
            return [Box((middle, 0.0, -self.config.depth / 2), (half, BANK, self.config.depth / 2)), floor]
        return [*self.stones(), floor]
