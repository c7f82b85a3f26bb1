"""Random patterns of two colours in a plane, made of sums and products alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CELLS = 64  # a side of the lattice, after which a pattern repeats
GRAIN = 0.4  # share of the grain in a plank's shade


class Texture(NamedTuple):
    """A pattern over a plane.

    Attributes:
      shade: (places [N, 2] in cells, lattice) -> shades [N] from 0 to 1.
      lattice: [CELLS, CELLS] random numbers from 0 to 1.
      axes: [2, 2], from places to cells: it turns them and divides by the size of a cell.
      colours: [2, 3] (red, green, blue, from 0 to 1), of the shades 0 and 1.
      share: of the pattern; the rest is the plain colour.
    """

    shade: Callable[[Floats, Floats], Floats]
    lattice: Floats
    axes: Floats
    colours: Floats
    share: float

    def over(self, plain: Floats, places: Floats) -> Floats:
        """Colours [N, 3] of a surface of the colour `plain` [3] at `places` [N, 2]."""
        x, y = places[:, 0], places[:, 1]
        cells = np.stack([x * row[0] + y * row[1] for row in self.axes], axis=1)
        shades = self.shade(cells, self.lattice)[:, None]
        pattern = self.colours[0] + shades * (self.colours[1] - self.colours[0])
        return plain + self.share * (pattern - plain)


@numba.njit(cache=True)
def clouds(cells: Floats, lattice: Floats) -> Floats:
    """Value noise in three octaves."""
    out = np.empty(len(cells))
    for i in range(len(cells)):
        u, v = cells[i]
        noise = 4.0 * _noise(lattice, u, v) + 2.0 * _noise(lattice, 2.0 * u + 17.3, 2.0 * v + 5.7)
        out[i] = (noise + _noise(lattice, 4.0 * u + 31.1, 4.0 * v + 11.9)) / 7.0
    return out


@numba.njit(cache=True)
def planks(cells: Floats, lattice: Floats) -> Floats:
    """Stripes, each of its own shade, with a grain along them."""
    out = np.empty(len(cells))
    for i in range(len(cells)):
        u, v = cells[i]
        plank = lattice[int(np.floor(u)) % CELLS, 0]
        out[i] = plank + GRAIN * (_noise(lattice, 12.0 * u, 0.5 * v) - plank)
    return out


@numba.njit(cache=True)
def tiles(cells: Floats, lattice: Floats) -> Floats:
    """Squares, each of its own shade."""
    out = np.empty(len(cells))
    for i in range(len(cells)):
        u, v = cells[i]
        out[i] = lattice[int(np.floor(u)) % CELLS, int(np.floor(v)) % CELLS]
    return out


PATTERNS = (clouds, planks, tiles)


@numba.njit(cache=True)
def _noise(lattice: Floats, u: float, v: float) -> float:
    """Numbers of the lattice, joined smoothly."""
    i, j = int(np.floor(u)), int(np.floor(v))
    s, t = u - i, v - j
    s, t = s * s * (3.0 - 2.0 * s), t * t * (3.0 - 2.0 * t)
    a, b = lattice[i % CELLS, j % CELLS], lattice[(i + 1) % CELLS, j % CELLS]
    c, d = lattice[i % CELLS, (j + 1) % CELLS], lattice[(i + 1) % CELLS, (j + 1) % CELLS]
    left, right = a + t * (c - a), b + t * (d - b)
    return float(left + s * (right - left))
