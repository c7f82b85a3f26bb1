"""What a memory of places holds around the robot, seen from above, for films.

The view turns with the robot: its first row is farthest ahead, its first column farthest left.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from robopolicy.policies.base import Observation
from robopolicy.policies.foothold_scores import landings
from robopolicy.policies.iap_config import IAPConfig

AHEAD, LEFT = (-0.6, 1.2), (-0.6, 0.6)  # m from the robot's middle, the ends of the view
SPACING = 0.03  # m


def places() -> tuple[tuple[int, int], NDArray[np.float32]]:
    """Rows and columns of the view, and the places of its pixels [rows * columns, 2] (m ahead, and left)."""
    x, y = (np.arange(last, first, -SPACING, dtype=np.float32) - SPACING / 2 for first, last in (AHEAD, LEFT))
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return (len(x), len(y)), grid.reshape(-1, 2).astype(np.float32)


def pixels(points: Any) -> NDArray[np.float64]:
    """Where the view shows `points` [N, 2] (m ahead, to the left): fractional columns and rows [N, 2]."""
    ahead, left = np.asarray(points, np.float64).T
    return np.stack([(LEFT[1] - left) / SPACING, (AHEAD[1] - ahead) / SPACING], axis=1)


def hips(config: IAPConfig) -> NDArray[np.float64]:
    """The places [N, 2] (m) of all legs that choose among footholds, in an order around the robot."""
    corners = [
        (choice.foot[0], choice.foot[1] * (-1 if output.mirrored else 1))
        for reader in config.readers
        if (choice := config.choice(reader))
        for output in reader.outputs
    ]
    return np.array(sorted(corners, key=lambda corner: np.arctan2(corner[1], corner[0]))).reshape(-1, 2)


def chosen(config: IAPConfig, observation: Observation, action: Array) -> Array:
    """Where the legs that read a memory would land by `action` [A], [N, 2] (m ahead, to the left)."""
    points = []
    for reader in filter(config.recall_of, config.readers):
        choice = config.choice(reader)
        assert choice is not None
        landing = landings(config, reader, choice, observation)
        x, y = (count // 2 * spacing for count, spacing in zip(choice.counts, choice.spacing, strict=True))
        for output, (ahead, left) in zip(reader.outputs, landing, strict=True):
            side = -1.0 if output.mirrored else 1.0
            moves = [action[config.actions.index(name)] for name in output.actions]
            aside = moves[1] * y if len(moves) > 1 else 0.0
            points.append([choice.foot[0] + ahead + moves[0] * x, side * (choice.foot[1] + left) + aside])
    return jnp.array(points).reshape(-1, 2)
