"""The types of a task's members: numbers, cameras, outcomes, a curriculum, a mirror, and shapes to draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.physics.base import Array

Description = dict[str, Any]
"""What JSON can hold of a task, by name."""


class Quantity(NamedTuple):
    """One number of a vector or of an action: its name, its unit, and the interval of any sound value.

    The unit of a number without one is "1". `step` is how far it may go in a control
    period. For an action, `high` is the physical value of an action of one, and `low` is -high.
    """

    name: str
    unit: str
    low: float
    high: float
    about: str = ""
    step: float | None = None

    def described(self) -> Description:
        """As JSON holds it."""
        row: Description = {
            "name": self.name,
            "unit": self.unit,
            "low": float(self.low),
            "high": float(self.high),
        }
        more = {"about": self.about or None, "step": None if self.step is None else float(self.step)}
        return row | {name: value for name, value in more.items() if value is not None}


class Outcome(NamedTuple):
    """A number in the last `info` of an episode: its name there, its title, and its formats.

    `cell` formats it in a table and `phrase` in a sentence, as in "{:7.2f} m" and "{:.2f} m". `before` is its
    value in episodes from before the task declared it; None if it has been there from the beginning.
    """

    name: str
    title: str
    cell: str
    phrase: str
    before: float | None = None

    @property
    def mean(self) -> str:
        """The name of its mean in JSON."""
        return f"{self.name}_mean"


class Curriculum(NamedTuple):
    """The default stages of training with evolution strategies.

    `presets` in order, mean returns to `advance_at` from all but the last, `episodes` of a candidate on each.
    """

    presets: tuple[str, ...]
    advance_at: tuple[float, ...]
    episodes: tuple[int, ...]


class Camera(NamedTuple):
    """An image observation: unit and interval of its pixels.

    `clip` is the interval that readings are clipped to, as in training; `pinhole` is as `simulated.pinhole`
    returns it.
    """

    unit: str
    low: float
    high: float
    about: str = ""
    clip: tuple[float, float] | None = None
    pinhole: Mapping[str, Any] | None = None

    def described(self, name: str) -> Description:
        """As JSON holds the camera `name`, without its pinhole."""
        row: Description = {"unit": self.unit, "low": float(self.low), "high": float(self.high)}
        if self.clip is not None:
            row["clip"] = list(map(float, self.clip))
        if self.pinhole is not None:
            row["camera"] = name
        return {**row, "about": self.about} if self.about else row


class Mirror(NamedTuple):
    """The mirror of a demonstration: functions of images [..., H, W, 3], vectors and actions [..., N]."""

    images: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
    vectors: Callable[[NDArray[Any]], NDArray[Any]]
    actions: Callable[[NDArray[Any]], NDArray[Any]]


class Boxes(NamedTuple):
    """`centers` and `halves` (half extents) [N, 3] (m), `rotations` [N, 3, 3] to the world (z up)."""

    centers: Array
    halves: Array
    rotations: Array


class Balls(NamedTuple):
    """`centers` [N, 3] (m, world) and the `radius` of each (m)."""

    centers: Array
    radius: float


class Lines(NamedTuple):
    """N lines, each through P `points` [N, P, 3] (m, world), drawn `radius` (m) thick."""

    points: Array
    radius: float


Shape = Boxes | Balls | Lines
