"""Footholds that a leg chooses among, and what a camera shows there.

The image is read at a grid of places around the landing of each leg, so that the same weights score every
foothold, from what lies at it and beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.naming import check_name
from robopolicy.settings import check_count, check_key, check_number

MOST_CHOICES = 33  # along one axis
LEAST, FARTHEST = 0.001, 100.0  # m
WIDEST = 179.0  # deg


@dataclass(frozen=True)
class Footholds:
    """A grid of footholds that the outputs of a reader choose among, and the mount of its camera.

    The mount turns with the robot's yaw and stays level. For a mirrored output, left is right.

    Attributes:
      reader: its name. It has one view; or none, if its legs choose without an image.
      counts: odd numbers of footholds ahead and to the left; outputs have one action, or two if the second
        count is above 1. Actions of -1 and 1 are the ends of the grid.
      spacing: distances (m) between footholds, ahead and to the left.
      nominal: for each output the entry of a vector that tells how far (m) ahead of `foot` it lands by an
        action of 0.
      aside: the same to the left of `foot`; () if it lands as far to the left as `foot`.
      foot: a place (m ahead and to the left of the robot's middle).
      mount: the camera's place (m ahead of the robot's middle, and above level ground). This and what
        follows have no effect without a view.
      tilt: angle (deg) of its axis from straight down towards the front.
      fields: its horizontal and vertical fields of view (deg).

    Raises ValueError in one line for a setting of another type or out of its range.
    """

    reader: str
    counts: tuple[int, int]
    spacing: tuple[float, float]
    nominal: tuple[str, ...]
    aside: tuple[str, ...]
    foot: tuple[float, float]
    mount: tuple[float, float] = (0.0, 1.0)
    tilt: float = 0.0
    fields: tuple[float, float] = (90.0, 90.0)

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a reader with footholds", self.reader)
        of = f"of the footholds of reader {self.reader!r}"
        for count in self.counts:
            check_count(f"a count {of}", count, 1, MOST_CHOICES)
            if count % 2 == 0:
                raise ValueError(f"a count {of} is {count}: it must be odd, for a middle that is action 0")
        for value in self.spacing:
            check_number(f"spacing {of}", value, LEAST, FARTHEST)
        if self.aside and len(self.aside) != len(self.nominal):
            raise ValueError(
                f"aside {of} has {len(self.aside)} entries: it must have as many as nominal, or none"
            )
        for value in self.foot:
            check_number(f"foot {of}", value, -FARTHEST, FARTHEST)
        check_mount(of, self.mount, self.tilt, self.fields)

    @property
    def actions(self) -> int:
        """Number of actions of an output."""
        return 2 if self.counts[1] > 1 else 1

    def places(self, border: int) -> int:
        """Number of places that are read, with `border` beyond each end of the footholds."""
        return prod(count + 2 * border for count in self.counts)

    @property
    def moves(self) -> NDArray[np.float32]:
        """The actions [F, A] of each foothold, row by row from the farthest behind, right first."""
        halves = [count // 2 for count in self.counts[: self.actions]]
        axes = [np.linspace(-1.0, 1.0, 2 * half + 1) if half else np.zeros(1) for half in halves]
        grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
        return grid.reshape(-1, self.actions).astype(np.float32)

    @property
    def terms(self) -> NDArray[np.float32]:
        """The terms of a preference without an image, [F, 2 A]: the actions and their squares."""
        return np.concatenate([self.moves, self.moves**2], axis=1)

    def grid(self, ahead: Any, left: Any, border: int, origin: float = 0.0) -> tuple[Any, Any]:
        """The places of the grid (m): ahead of a point `origin` ahead of the robot's middle, and to the left.

        Arguments are those of `seen_at`. Returns [counts[0] + 2 border, 1] and [counts[1] + 2 border].
        """
        x, y = (
            spacing * np.arange(-(count // 2) - border, count // 2 + border + 1, dtype=np.float32)
            for count, spacing in zip(self.counts, self.spacing, strict=True)
        )
        return (x + np.float32(self.foot[0] - origin) + ahead)[:, None], y + np.float32(self.foot[1]) + left

    def seen_at(
        self, size: tuple[int, int], ahead: Any, left: Any, border: int = 0, mirrored: bool = False
    ) -> tuple[Any, Any]:
        """Where an image of `size` shows the grid on level ground, as fractional rows and columns.

        Args:
          size: rows and columns of pixels. A place outside of them is seen at their edge.
          ahead, left: where the middle of the grid lies from `foot` (m).
          border: places beyond each end of the grid.
          mirrored: whether the places are those of a mirror image.

        Returns rows [counts[0] + 2 border, 1] and columns [counts[0] + 2 border, counts[1] + 2 border].
        """
        x, y = self.grid(ahead, left, border, self.mount[0])
        sine, cosine = float(np.sin(np.radians(self.tilt))), float(np.cos(np.radians(self.tilt)))
        across, along = np.tan(np.radians(self.fields) / 2).tolist()
        # Places behind the camera are read at the edge of its image.
        closeness = 1.0 / jnp.maximum(x * sine + self.mount[1] * cosine, LEAST)
        rows, columns = size
        row = (rows - 1) / 2 - (rows / 2 / along) * (x * cosine - self.mount[1] * sine) * closeness
        column = (columns - 1) / 2 - (columns / 2 / across) * y * closeness
        if mirrored:
            column = (columns - 1.0) - column
        return jnp.clip(row, 0.0, rows - 1.0), jnp.clip(column, 0.0, columns - 1.0)


def check_mount(of: str, mount: tuple[float, float], tilt: float, fields: tuple[float, float]) -> None:
    """Raise ValueError, ending its subject by `of`, for the mount of a camera that is out of its range."""
    check_number(f"mount {of}", mount[0], -FARTHEST, FARTHEST)
    check_number(f"the height of the mount {of}", mount[1], LEAST, FARTHEST)
    check_number(f"tilt {of}", tilt, -90.0, 90.0)
    for value in fields:
        check_number(f"fields {of}", value, 0.1, WIDEST)


def between_pixels(image: Array, row: Array, column: Array) -> Array:
    """`image` [H, W, C] at fractional rows [R, 1] and columns [R, S], bilinear between pixels, [R, S, C]."""
    height, width, channels = image.shape
    top, first = jnp.minimum(jnp.floor(row), height - 2.0), jnp.minimum(jnp.floor(column), width - 2.0)
    down, right = (row - top)[..., None], (column - first)[..., None]
    corner = (top * width + first).astype(jnp.int32)
    pixels = image.reshape(-1, channels)

    def across(step: int) -> Array:
        a, b = (jnp.take(pixels, corner + step + side, axis=0, mode="clip") for side in (0, 1))
        return a + right * (b - a)

    upper = across(0)
    return upper + down * (across(width) - upper)


def beside(grid: Array) -> Array:
    """The 3 x 3 neighbours of every inner place of `grid` [R, S, C], side by side: [R - 2, S - 2, 9 C]."""
    rows, columns = grid.shape[0] - 2, grid.shape[1] - 2
    return jnp.concatenate([grid[i : i + rows, j : j + columns] for i in range(3) for j in range(3)], axis=-1)


def chosen(scores: Array, moves: NDArray[np.float32], is_choice: bool) -> Array:
    """Actions [N, A] by scores [N, F]: the best of `moves` [F, A], or their mean weighted by a softmax."""
    if is_choice:
        return jnp.take(moves, jnp.argmax(scores, axis=1), axis=0, mode="clip")
    return jax.nn.softmax(scores) @ moves
