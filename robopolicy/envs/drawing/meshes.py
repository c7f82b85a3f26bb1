"""Meshes of simple shapes, as TinyRenderer draws them, and those of files.

Round shapes are hulls of their farthest points in 42 directions, with normals that point away from their
middle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from robopolicy.settings import check_number

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]

RIM = 32  # corners of a cylinder's rim
MARGIN = 0.001  # m, by which Bullet rounds a cylinder
FLAT = 1e-9  # height of a direction that is level
SIZES = 1e-6, 1e6  # m, the range of radii, half extents and lengths


class Mesh(NamedTuple):
    """A closed surface in its own frame.

    Attributes:
      vertices: [V, 3] (m). normals: [N, 3], of length one.
      corners, corner_normals: [T, 3], indices; corners run counterclockwise seen from outside.
    """

    vertices: Floats
    normals: Floats
    corners: Indices
    corner_normals: Indices


@functools.cache
def directions() -> Floats:
    """The 42 directions: corners of an icosahedron and middles of its edges, [42, 3]."""
    ring = 2 * math.pi / 5 * np.arange(5)
    low, high = math.sqrt(0.8), math.sqrt(0.2)
    corners = np.concatenate(
        [
            [[0.0, 0.0, -1.0], [0.0, 0.0, 1.0]],
            np.column_stack([low * np.cos(ring), low * np.sin(ring), np.full(5, high)]),
            np.column_stack([-low * np.cos(ring), -low * np.sin(ring), np.full(5, -high)]),
        ]
    )
    first, second = np.triu_indices(12, 1)
    is_edge = (corners[first] * corners[second]).sum(axis=1) > 0.4
    middles = corners[first[is_edge]] + corners[second[is_edge]]
    out = np.concatenate([corners, middles / np.linalg.norm(middles, axis=1, keepdims=True)])
    out.setflags(write=False)
    return out


def ball(radius: float) -> Mesh:
    """A ball of 80 faces."""
    check_number("radius", radius, *SIZES)
    return _hull(radius * directions())


def box(half: Sequence[float]) -> Mesh:
    """A box with these half extents (m)."""
    for extent in half:
        check_number("half extent", extent, *SIZES)
    signs = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    mesh = _hull(signs * np.asarray(half))
    a, b, c = (mesh.vertices[mesh.corners[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    flat = np.repeat(np.arange(len(normals), dtype=np.int32)[:, None], 3, axis=1)
    return mesh._replace(normals=normals, corner_normals=flat)


def cylinder(radius: float, length: float) -> Mesh:
    """A cylinder along z around the origin."""
    check_number("radius", radius, *SIZES)
    check_number("length", length, *SIZES)
    turns = 2 * math.pi / RIM * np.arange(RIM)
    rim = np.column_stack([radius * np.sin(turns), radius * np.cos(turns)])
    points = np.concatenate([np.column_stack([rim, np.full(RIM, z)]) for z in (length / 2, -length / 2)])
    return _hull(points[np.argmax(directions() @ points.T, axis=1)] + MARGIN * directions())


def capsule(radius: float, length: float) -> Mesh:
    """A capsule along z around the origin; `length` is that of its cylinder."""
    check_number("radius", radius, *SIZES)
    check_number("length", length, *SIZES)
    upper = directions()[directions()[:, 2] > -FLAT]
    lower = directions()[directions()[:, 2] < FLAT]
    end = np.array([0.0, 0.0, length / 2])
    mesh = _hull(np.concatenate([radius * upper + end, radius * lower - end]))
    return mesh._replace(normals=np.concatenate([upper, lower]))


def _hull(points: Floats) -> Mesh:
    hull = ConvexHull(points)
    used = np.unique(hull.simplices)
    vertices = points[used]
    corners = np.searchsorted(used, hull.simplices).astype(np.int32)
    a, b, c = (vertices[corners[:, k]] for k in range(3))
    inward = (np.cross(b - a, c - a) * (a + b + c)).sum(axis=1) < 0
    corners[inward] = corners[inward][:, ::-1]
    return Mesh(vertices, vertices / np.linalg.norm(vertices, axis=1, keepdims=True), corners, corners)


def read_obj(path: Path) -> Mesh:
    """The triangles of a Wavefront OBJ file with a normal at each corner.

    Raises FileNotFoundError, or ValueError, in one line, for a file without such faces.
    """
    rows: dict[str, list[list[str]]] = {"v": [], "vn": [], "f": []}
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"mesh {path} does not exist") from error
    for line in text.splitlines():
        kind, *words = line.split() or [""]
        if kind in rows:
            rows[kind].append(words)
    if not rows["f"]:
        raise ValueError(f"mesh {path} has no faces")
    try:
        pairs = np.array([[word.split("/")[::2] for word in words] for words in rows["f"]], np.int32) - 1
        if pairs.shape[1:] != (3, 2):
            raise ValueError("a face is not three corners with a normal each")
        vertices, normals = (_points(rows[kind]) for kind in ("v", "vn"))
        if pairs.min() < 0 or pairs[..., 0].max() >= len(vertices) or pairs[..., 1].max() >= len(normals):
            raise ValueError("a face names a corner that the mesh lacks")
        lengths = np.linalg.norm(normals, axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError("it has a normal of length zero")
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"mesh {path} is not read: {error}; faces must be triangles such as 1//1 2//2 3//3"
        ) from error
    return Mesh(vertices, normals / lengths, pairs[..., 0].copy(), pairs[..., 1].copy())


def _points(rows: list[list[str]]) -> Floats:
    """Rows as points [N, 3]; a row may have more words, such as a colour."""
    points = np.array([words[:3] for words in rows] or np.empty((0, 3)), float)
    if points.shape[1:] != (3,) or not np.isfinite(points).all():
        raise ValueError("a point or a normal is not three finite numbers")
    return points


def scaled(mesh: Mesh, scale: Sequence[float]) -> Mesh:
    """The mesh as many times as large as `scale` [3] says along each axis; a negative number mirrors it."""
    factors = np.asarray(scale, float)
    if (factors == 1).all():
        return mesh
    if not (np.isfinite(factors).all() and factors.all()):
        raise ValueError(f"scale is {factors.tolist()}: it must be three numbers other than 0")
    normals = mesh.normals / factors
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    order = slice(None, None, -1 if factors.prod() < 0 else 1)
    corners, corner_normals = (rows[:, order].copy() for rows in (mesh.corners, mesh.corner_normals))
    return Mesh(mesh.vertices * factors, normals, corners, corner_normals)
