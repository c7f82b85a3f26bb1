"""Where in a camera's image a foot would land, and what the image shows there.

A leg that chooses a foothold has to know what is at each, and where that is in the image changes with the
speed of the robot. Means of rows or cells tell it in part only.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.naming import check_name
from robopolicy.settings import check_count, check_fields, check_number

MOST_CHOICES = 32  # values of one action
FARTHEST = 100.0  # m
WIDEST = 179.0  # deg


@dataclass(frozen=True)
class Footholds:
    """The footholds that the outputs of a reader choose among, and the mount of its camera.

    The mount turns with the robot's yaw and stays level. Left and right are those of an output that is not
    mirrored.

    Attributes:
      reader: its name. It has one view, and its outputs have one action for each of `reach`.
      ahead, left: the values of the actions that an output chooses among, [-1, 1]; the first ones are the
        choice without a lead. () for `left` without an action to the left.
      reach: how far (m) an action of 1 moves the foothold: ahead, and to the left if `left` has values.
      around: distance (m) from a foothold of four more points that are read: ahead, behind, left and right.
      nominal: for each output the entry of a vector that tells how far (m) ahead of `foot` it lands by an
        action of 0.
      foot: a place (m ahead and to the left of the robot's middle).
      mount: the camera's place (m ahead of the robot's middle, and above level ground).
      tilt: angle (deg) of its axis from straight down towards the front.
      fields: its horizontal and vertical fields of view (deg).

    Raises ValueError in one line for a setting of another type or out of its range.
    """

    reader: str
    ahead: tuple[float, ...]
    left: tuple[float, ...]
    reach: tuple[float, ...]
    around: float
    nominal: tuple[str, ...]
    foot: tuple[float, float]
    mount: tuple[float, float]
    tilt: float
    fields: tuple[float, float]

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("a reader with footholds", self.reader)
        of = f"of the footholds of reader {self.reader!r}"
        for name, least in (("ahead", 1), ("left", 0)):
            values = getattr(self, name)
            check_count(f"the number of values {name} {of}", len(values), least, MOST_CHOICES)
            for value in values:
                check_number(f"a value {name} {of}", value, -1.0, 1.0)
        axes = 1 + bool(self.left)
        check_count(f"the number of numbers in reach {of}", len(self.reach), axes, axes)
        for value in (*self.reach, self.around):
            check_number(f"reach or around {of}", value, 0.0, FARTHEST)
        for value in (*self.foot, *self.mount):
            check_number(f"foot or mount {of}", value, -FARTHEST, FARTHEST)
        check_number(f"the height of the mount {of}", self.mount[1], 0.01, FARTHEST)
        check_number(f"tilt {of}", self.tilt, -90.0, 90.0)
        for value in self.fields:
            check_number(f"fields {of}", value, 0.1, WIDEST)

    @property
    def moves(self) -> NDArray[np.float32]:
        """The actions [F, A] of each foothold."""
        return np.array(list(product(self.ahead, self.left) if self.left else zip(self.ahead)), np.float32)

    @property
    def points(self) -> NDArray[np.float32]:
        """Where each foothold is read (m ahead and to the left of the nominal landing), [F, 5, 2]."""
        moved = np.zeros((len(self.moves), 2), np.float32)
        moved[:, : len(self.reach)] = self.moves * np.array(self.reach, np.float32)
        cross = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)], np.float32)
        return moved[:, None] + self.around * cross

    def seen_at(self, nominal: Array, rows: int, columns: int) -> tuple[Any, Any]:
        """Rows and columns [F, 5] of the points on level ground, in an image of this size, as fractions."""
        tilt, (across, along) = np.radians(self.tilt), np.tan(np.radians(self.fields) / 2)
        ahead = self.points[..., 0] + np.float32(self.foot[0] - self.mount[0]) + nominal
        left = self.points[..., 1] + np.float32(self.foot[1])
        # Points behind the camera are read at the edge of its image.
        depth = jnp.maximum(ahead * float(np.sin(tilt)) + float(self.mount[1] * np.cos(tilt)), 1e-3)
        above = ahead * float(np.cos(tilt)) - float(self.mount[1] * np.sin(tilt))
        half = np.float32(0.5)
        row = (1.0 - above / depth / float(along)) * float(rows / 2) - half
        column = (1.0 - left / depth / float(across)) * float(columns / 2) - half
        return row, column

    def look(self, image: Array, nominal: Array, mirrored: bool) -> Array:
        """What `image` [rows, columns, C] shows at each foothold, [F, 5 * C]: bilinear between its pixels."""
        rows, columns, channels = image.shape
        row, column = self.seen_at(nominal, rows, columns)
        if mirrored:
            column = float(columns - 1) - column
        row, column = jnp.clip(row, 0.0, rows - 1.0), jnp.clip(column, 0.0, columns - 1.0)
        top, first = jnp.minimum(jnp.floor(row), rows - 2.0), jnp.minimum(jnp.floor(column), columns - 2.0)
        down, right = row - top, column - first
        corner = (top * columns + first).astype(jnp.int32).ravel()
        pixels = image.reshape(-1, channels)
        weights = {
            0: (1.0 - down) * (1.0 - right),
            1: (1.0 - down) * right,
            columns: down * (1.0 - right),
            columns + 1: down * right,
        }
        parts = (
            weight.reshape(-1, 1) * jnp.take(pixels, corner + step, axis=0, mode="clip")
            for step, weight in weights.items()
        )
        return sum(parts, jnp.float32(0)).reshape(len(self.moves), -1)


def chosen(scores: Array, moves: NDArray[np.float32], is_choice: bool) -> Array:
    """Actions [N, A] by scores [N, F]: the best of `moves` [F, A], or their mean weighted by a softmax."""
    if is_choice:
        return jnp.take(moves, jnp.argmax(scores, axis=1), axis=0, mode="clip")
    return jax.nn.softmax(scores) @ moves
