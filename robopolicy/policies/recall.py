"""What a memory of a policy needs to know of a camera: where on the ground lies what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.naming import check_name
from robopolicy.policies.footholds import LEAST, Footholds, check_mount
from robopolicy.settings import check_key


@dataclass(frozen=True)
class Recall:
    """A memory of what a camera showed, for a reader with footholds.

    Attributes:
      reader: its name.
      camera: whose tokens are written, each by the mean of its pixels.
      odometry: entries of a vector: place ahead and to the left (m) and yaw (rad) since the start.
      mount, tilt, fields: of the camera, as in `Footholds`.

    Raises ValueError in one line for a setting of another type or out of its range.
    """

    reader: str
    camera: str
    odometry: tuple[str, ...]
    mount: tuple[float, float]
    tilt: float
    fields: tuple[float, float]

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a reader with a memory", self.reader)
        of = f"of the memory of reader {self.reader!r}"
        if len(self.odometry) != 3:
            raise ValueError(f"odometry {of} is {self.odometry}: it must be three entries, x, y and yaw")
        check_mount(of, self.mount, self.tilt, self.fields)

    def ground(self, rows: int, columns: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Where rows x columns tokens of an image lie on level ground.

        Returns places [L, 2] (m ahead of the robot's middle, and to the left), and which tokens [L] are below
        the horizon.
        """
        across, along = np.tan(np.radians(self.fields) / 2)
        v = ((np.arange(rows) + 0.5) / rows * 2 - 1)[:, None] * along
        u = ((np.arange(columns) + 0.5) / columns * 2 - 1) * across
        sine, cosine = np.sin(np.radians(self.tilt)), np.cos(np.radians(self.tilt))
        down = cosine + v * sine + 0 * u
        is_below = down > LEAST
        depth = self.mount[1] / np.where(is_below, down, 1.0)
        places = np.stack([self.mount[0] + depth * (sine - v * cosine), -depth * u], axis=-1)
        return places.reshape(-1, 2).astype(np.float32), is_below.ravel()


def moved(pose: Array, places: Any) -> Array:
    """Places [N, 2] relative to the robot as places since the start, for its `pose` [3] (m, m, rad)."""
    c, s = jnp.cos(pose[2]), jnp.sin(pose[2])
    x, y = places[:, 0], places[:, 1]
    return jnp.stack([pose[0] + c * x - s * y, pose[1] + s * x + c * y], axis=1)


def around(choice: Footholds, ahead: Any, left: Any, border: int, mirrored: bool) -> Array:
    """The places [R * S, 2] (m from the robot's middle) of the grid that `Footholds.seen_at` finds."""
    x, y = choice.grid(ahead, left, border)
    x, y = jnp.broadcast_arrays(x, -y if mirrored else y)
    return jnp.stack([x.ravel(), y.ravel()], axis=1)
