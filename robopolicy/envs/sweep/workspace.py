"""The targets of the spatulas: above the table, within reach of both arms, and apart from each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics.base import Array
from robopolicy.envs.sweep import kinematics
from robopolicy.settings import check_interval, check_number

LIP, HALF_WIDTH, BACK = 0.06, 0.065, 0.07  # m, of the spatula
FLANGE_RADIUS, WRIST_RADIUS = 0.06, 0.095  # m, of the arm's last links
HALVINGS = 6
FARTHEST = 0.5  # rad, the largest move of a joint in a step: beyond it lies another branch
SLACK = 0.001  # m, the largest dip of a path between two targets below the bounds of both
# Points that clear table and neighbour: the corners of the lip, the top of the back, the end of the arm.
_CORNERS = np.array(
    [
        *((x, y, 0.0) for x in (0.0, LIP) for y in (-HALF_WIDTH, HALF_WIDTH)),
        *((0.0, y, BACK) for y in (-HALF_WIDTH, HALF_WIDTH)),
        *((FLANGE_RADIUS - kinematics.OFFSET, y, kinematics.HANDLE) for y in (-FLANGE_RADIUS, FLANGE_RADIUS)),
        (WRIST_RADIUS - kinematics.OFFSET, 0.0, kinematics.HANDLE + kinematics.WRIST),
    ]
)


@dataclass(frozen=True)
class WorkspaceConfig:
    """Bounds of the spatulas' places, in metres; angles in radians.

    Raises ValueError for numbers below 0, `x`, `y` or `height` above 2, `turn` above 3 and `gap` above 0.5.
    """

    x: float = 0.45  # either way from the table's middle
    y: float = 0.45
    height: tuple[float, float] = (0.0015, 0.35)  # of a spatula's lowest corner, and of its origin
    turn: float = 0.8  # away from upright, about any axis
    gap: float = 0.002  # between the spatulas, along y

    def __post_init__(self) -> None:
        for name, high in (("x", 2.0), ("y", 2.0), ("turn", 3.0), ("gap", 0.5)):
            check_number(name, getattr(self, name), 0.0, high)
        check_interval("height", self.height, 0.0, 2.0)


class Target(NamedTuple):
    """The targets of the spatulas: positions [2, 3] (m) and turns [2, 3] away from upright.

    A turn is a rotation vector (rad) about the world's axes.
    """

    positions: Array
    turns: Array


class Workspace:
    """Left arm (index 0) at negative y and right arm at positive y, each looking at the other."""

    def __init__(self, config: WorkspaceConfig, bases: Array) -> None:
        """`bases` [2, 3]: x, y (m) and yaw (rad) of each arm; kept as transforms [2, 4, 4] to the world."""
        self.config = config
        self.bases = np.stack([kinematics.frame((0.0, 0.0, yaw), (x, y, 0.0)) for x, y, yaw in bases])
        self._home = Rotation.from_matrix(self.bases[:, :3, :3])
        self._from_world = np.linalg.inv(self.bases)

    def moved(self, target: Target, moves: Array, turns: Array) -> Target:
        """`target` shifted by `moves` [2, 3] (m) and turned by `turns` [2, 3] (rad), brought inside."""
        turned = (Rotation.from_rotvec(turns) * Rotation.from_rotvec(target.turns)).as_rotvec()
        angles = np.linalg.norm(turned, axis=1, keepdims=True)
        turned *= np.minimum(1.0, self.config.turn / np.maximum(angles, 1e-9))
        return self._inside(target.positions + moves, turned)

    def rotations(self, turns: Array) -> Rotation:
        """The spatulas' rotations to the world, for `turns` [2, 3]."""
        return Rotation.from_rotvec(turns) * self._home

    def target(self, positions: Array, rotations: Array) -> Target:
        """The target of spatulas at `positions` [2, 3] (m), with `rotations` [2, 3, 3] to the world."""
        return Target(positions, (Rotation.from_matrix(rotations) * self._home.inv()).as_rotvec())

    def clear(self, target: Target) -> bool:
        """Whether spatulas at `target` are above the table and apart from each other."""
        corners = self._corners(target.turns)
        lowest = (target.positions[:, 2] + corners[:, :, 2].min(axis=1)).min()
        low, gap = self.config.height[0], _gap(target.positions, corners)
        return bool(lowest >= low - SLACK and gap >= self.config.gap - SLACK)

    def _inside(self, positions: Array, turns: Array) -> Target:
        config = self.config
        positions, corners = positions.copy(), self._corners(turns)
        positions[:, 0] = np.clip(positions[:, 0], -config.x, config.x)
        positions[:, 1] = np.clip(positions[:, 1], -config.y, config.y)
        low, high = config.height
        positions[:, 2] = np.clip(positions[:, 2], low - corners[:, :, 2].min(axis=1), high)
        shortfall = config.gap - _gap(positions, corners)
        if shortfall > 0:
            # Both move apart alike; if one has no room behind it, both shift.
            positions[:, 1] += np.array([-0.5, 0.5]) * shortfall
            positions[:, 1] += max(0.0, -config.y - positions[0, 1]) - max(0.0, positions[1, 1] - config.y)
        return Target(positions, turns)

    def _corners(self, turns: Array) -> Array:
        """The points that must clear table and neighbour, relative to the spatulas' origins, [2, C, 3]."""
        return np.stack([rotation.apply(_CORNERS) for rotation in self.rotations(turns)])

    def settled(self, target: Target) -> Array:
        """Joints [2, 7] (rad) for an initial target, from the arms' posture of rest.

        Raises ValueError, in one line, if it is out of reach, or not `clear`.
        """
        solved = [self._joints(arm, target, kinematics.REST, np.inf) for arm in range(2)]
        if not (all(reached for _, reached in solved) and self.clear(target)):
            raise ValueError(
                f"start is {tuple(target.positions[1].tolist())}: both arms must reach it from their bases, "
                "with spatulas above the table and apart"
            )
        return np.stack([joints for joints, _ in solved])

    def follow(
        self, before: Target, wanted: Target, joints: Array
    ) -> tuple[Array, Target, NDArray[np.bool_]]:
        """Go from `before`, at `joints` [2, 7] of the arms, towards `wanted`.

        Returns the joints there, the attained target, and which arms [2] could not reach theirs: those go as
        far as they can on their way. If one stays behind, the other does not enter the room that the first
        one was to leave.
        """
        ways = [self._farthest([arm], before, wanted, joints) for arm in range(2)]
        solved = np.concatenate([angles for angles, _, _ in ways])
        attained = Target(
            np.stack([ways[arm][1].positions[arm] for arm in range(2)]),
            np.stack([ways[arm][1].turns[arm] for arm in range(2)]),
        )
        clipped = np.array([not reached for _, _, reached in ways])
        if self.clear(attained):
            return solved, attained, clipped
        for arm in np.argsort(clipped, kind="stable"):
            # One alone, first the one that is in reach.
            moved = (np.arange(2) == arm)[:, None]
            alone = Target(*(np.where(moved, a, b) for a, b in zip(attained, before, strict=True)))
            if self.clear(alone):
                return np.where(moved, solved, joints), alone, clipped | ~moved[:, 0]
        solved, attained, _ = self._farthest([0, 1], before, attained, joints)
        return solved, attained, clipped

    def _farthest(
        self, arms: list[int], before: Target, wanted: Target, joints: Array
    ) -> tuple[Array, Target, bool]:
        """The farthest that `arms` go together towards `wanted`, by bisection, and whether they reach it.

        Returns their joints [A, 7] and the target. Two arms stay clear of each other.
        """
        near, far, best = 0.0, 1.0, (joints[arms], before)
        share = 1.0 if len(arms) == 1 else 0.5  # `follow` has tried the whole way of both
        while far - near > 0.5**HALVINGS:
            between = wanted if share == 1.0 else _between(before, wanted, share)
            solved = [self._joints(arm, between, joints[arm], FARTHEST) for arm in arms]
            if all(reached for _, reached in solved) and (len(arms) == 1 or self.clear(between)):
                near, best = share, (np.stack([angles for angles, _ in solved]), between)
            else:
                far = share
            share = (near + far) / 2
        return *best, near == 1.0

    def _joints(self, arm: int, target: Target, start: Array, farthest: float) -> tuple[Array, bool]:
        pose = np.eye(4)
        pose[:3, :3] = self.rotations(target.turns)[arm].as_matrix()
        pose[:3, 3] = target.positions[arm]
        solution = kinematics.inverse(self._from_world[arm] @ pose, start, farthest)
        return solution.joints, solution.reached


def _gap(positions: Array, corners: Array) -> float:
    """Distance between the spatulas along y, m."""
    return float(positions[1, 1] + corners[1, :, 1].min() - positions[0, 1] - corners[0, :, 1].max())


def _between(before: Target, after: Target, share: float) -> Target:
    return Target(*(a + share * (b - a) for a, b in zip(before, after, strict=True)))
