"""A z-buffer rasteriser with the sampling and the shading of Bullet's TinyRenderer, for one core.

A pixel is sampled at its lower left corner. Normals are interpolated over a triangle, with perspective, and
shaded by an ambient, a diffuse and a specular term (Phong 1975); colours are rounded down. Faces that look
away are left out. Sums have a fixed order and no fused operations, so a scene gives the same bits in every
process.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Indices = NDArray[np.int32]

DIFFUSE, SPECULAR = np.float32(0.35), np.float32(0.05)  # shares of the light: TinyRenderer's
ZERO, ONE, TWO, BRIGHTEST = np.float32(0), np.float32(1), np.float32(2), np.float32(255)
SLIVER = 0.01  # pixels, twice the area below which a triangle is left out, as in TinyRenderer


class Triangles(NamedTuple):
    """All meshes of a scene, one behind the other, each in its own frame.

    Attributes:
      vertices: [V, 3] (m). normals: [N, 3], of length one.
      corners, corner_normals: [T, 3], indices; corners run counterclockwise for those whom the face looks at.
      planes: [T, 4], the outer normal of a face, of any length, and its product with a point of the face.
    """

    vertices: Floats
    normals: Floats
    corners: Indices
    corner_normals: Indices
    planes: Floats


class Instances(NamedTuple):
    """What is drawn.

    Attributes:
      ranges: [I, 4], first and last vertex, first and last triangle of its mesh.
      spheres: [I, 4] (m), centre and radius of a sphere around the mesh.
      colours: [I, 3], from 0 to 255.
    """

    ranges: Indices
    spheres: Floats
    colours: Floats32


class Lens(NamedTuple):
    """A pinhole camera: `rotation` [3, 3] to its axes (right, up, back), and its `eye` [3] (m).

    `scale` is the number of pixels for a tangent of one. It sees what is between `near` and `far` (m).
    """

    rotation: Floats
    eye: Floats
    scale: float
    near: float
    far: float


class Light(NamedTuple):
    """`direction` [3] to the light, of length one, and the `ambient` share of the light."""

    direction: Floats32
    ambient: np.float32


@numba.njit(cache=True)
def draw(
    triangles: Triangles,
    instances: Instances,
    poses: Floats,
    lens: Lens,
    light: Light,
    nearness: Floats32,
    picture: NDArray[np.uint8],
) -> int:
    """Draw `instances` at `poses` [I, 4, 4] (to world) over `picture` [H, W, 3].

    `nearness` [H, W] holds the inverse of each pixel's distance along the view (1/m). Returns -1, or the
    first instance that has the camera inside.
    """
    longest = (instances.ranges[:, 1] - instances.ranges[:, 0]).max()
    places = np.empty((longest, 3))  # of vertices: right, up, ahead (m)
    pixels = np.empty((longest, 3))  # of those beyond `near`: column, row from below, nearness
    corner = np.empty((3, 6))  # of a triangle: column, row, nearness, normal
    polygon = np.empty((4, 6))
    local, arm = np.empty(3), np.empty(3)
    height, width = nearness.shape
    for i in range(len(poses)):
        first, last, begin, end = instances.ranges[i]
        pose, colour = poses[i], instances.colours[i]
        _unturned(pose, lens.eye - pose[:3, 3], local)
        sphere = instances.spheres[i]
        for a in range(3):
            arm[a] = local[a] - sphere[a]
        if math.sqrt(_dot(arm, arm)) <= sphere[3] and _surrounds(triangles, begin, end, local):
            return i
        if _is_outside(sphere, pose, lens, width, height):
            continue
        _see(triangles.vertices[first:last], pose, lens, places)
        nearest = math.inf
        for v in range(last - first):
            nearest = min(nearest, places[v, 2])
            if places[v, 2] >= lens.near:
                _project(places[v], lens, width, height, pixels[v])
        for t in range(begin, end):
            plane = triangles.planes[t]
            if plane[0] * local[0] + plane[1] * local[1] + plane[2] * local[2] <= plane[3]:
                continue
            corners, normals = triangles.corners[t], triangles.corner_normals[t]
            if nearest >= lens.near or _is_ahead(corners, first, places, lens.near):
                a, b, c = corners[0] - first, corners[1] - first, corners[2] - first
                if _misses(pixels[a, 0], pixels[b, 0], pixels[c, 0], width):
                    continue
                if _misses(pixels[a, 1], pixels[b, 1], pixels[c, 1], height):
                    continue
                for k in range(3):
                    corner[k, :3] = pixels[corners[k] - first]
                    _turn(pose, triangles.normals[normals[k]], corner[k, 3:])
                _fill(corner, colour, light, lens.far, nearness, picture)
                continue
            for k in range(3):
                corner[k, :3] = places[corners[k] - first]
                _turn(pose, triangles.normals[normals[k]], corner[k, 3:])
            count = _clip(corner, lens.near, polygon)
            for k in range(count):
                _project(polygon[k], lens, width, height, polygon[k])
            for k in range(2, count):
                corner[0], corner[1], corner[2] = polygon[0], polygon[k - 1], polygon[k]
                _fill(corner, colour, light, lens.far, nearness, picture)
    return -1


@numba.njit(cache=True)
def _surrounds(triangles: Triangles, begin: int, end: int, eye: Floats) -> bool:
    """Whether a closed mesh has `eye` [3] inside: its solid angle is a whole sphere.

    The angle of a triangle is that of Van Oosterom and Strackee (1983).
    """
    angle = 0.0
    sides = np.empty((3, 3))
    for t in range(begin, end):
        for k in range(3):
            for n in range(3):
                sides[k, n] = triangles.vertices[triangles.corners[t, k], n] - eye[n]
        a, b, c = sides[0], sides[1], sides[2]
        la, lb, lc = math.sqrt(_dot(a, a)), math.sqrt(_dot(b, b)), math.sqrt(_dot(c, c))
        volume = (
            a[0] * (b[1] * c[2] - b[2] * c[1])
            + a[1] * (b[2] * c[0] - b[0] * c[2])
            + a[2] * (b[0] * c[1] - b[1] * c[0])
        )
        angle += math.atan2(volume, la * lb * lc + _dot(a, b) * lc + _dot(b, c) * la + _dot(c, a) * lb)
    return abs(angle) > math.pi


@numba.njit(cache=True)
def _dot(a: Floats, b: Floats) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


@numba.njit(cache=True)
def _turn(pose: Floats, vector: Floats, out: Floats) -> None:
    for a in range(3):
        out[a] = pose[a, 0] * vector[0] + pose[a, 1] * vector[1] + pose[a, 2] * vector[2]


@numba.njit(cache=True)
def _unturned(pose: Floats, vector: Floats, out: Floats) -> None:
    for a in range(3):
        out[a] = pose[0, a] * vector[0] + pose[1, a] * vector[1] + pose[2, a] * vector[2]


@numba.njit(cache=True)
def _see(vertices: Floats, pose: Floats, lens: Lens, places: Floats) -> None:
    """The places of vertices in the camera's frame: right, up, ahead (m)."""
    away = pose[:3, 3] - lens.eye
    for a in range(3):
        axis = lens.rotation[a] if a < 2 else -lens.rotation[2]
        x = axis[0] * pose[0, 0] + axis[1] * pose[1, 0] + axis[2] * pose[2, 0]
        y = axis[0] * pose[0, 1] + axis[1] * pose[1, 1] + axis[2] * pose[2, 1]
        z = axis[0] * pose[0, 2] + axis[1] * pose[1, 2] + axis[2] * pose[2, 2]
        w = axis[0] * away[0] + axis[1] * away[1] + axis[2] * away[2]
        for v in range(len(vertices)):
            places[v, a] = x * vertices[v, 0] + y * vertices[v, 1] + z * vertices[v, 2] + w


@numba.njit(cache=True)
def _is_outside(sphere: Floats, pose: Floats, lens: Lens, width: int, height: int) -> bool:
    """Whether the picture shows nothing of a sphere."""
    place = np.empty((1, 3))
    _see(sphere[:3].reshape(1, 3), pose, lens, place)
    right, up, ahead = place[0]
    radius, wide, high = sphere[3], width / 2 / lens.scale, height / 2 / lens.scale
    return (
        ahead + radius < lens.near
        or ahead - radius > lens.far
        or abs(right) - wide * ahead > radius * math.sqrt(1 + wide**2)
        or abs(up) - high * ahead > radius * math.sqrt(1 + high**2)
    )


@numba.njit(cache=True)
def _project(place: Floats, lens: Lens, width: int, height: int, out: Floats) -> None:
    """The column, the row from below and the nearness (1/m) of a `place` in the camera's frame."""
    nearness = 1.0 / place[2]
    out[0] = width / 2 + lens.scale * place[0] * nearness
    out[1] = height / 2 + lens.scale * place[1] * nearness
    out[2] = nearness


@numba.njit(cache=True)
def _is_ahead(corners: Indices, first: int, places: Floats, near: float) -> bool:
    return (
        places[corners[0] - first, 2] >= near
        and places[corners[1] - first, 2] >= near
        and places[corners[2] - first, 2] >= near
    )


@numba.njit(cache=True)
def _misses(a: float, b: float, c: float, size: int) -> bool:
    """Whether no sample, of those at 0, 1, ... size - 1, lies between the corners."""
    low, high = max(0.0, math.ceil(min(a, b, c))), min(size - 1.0, math.floor(max(a, b, c)))
    return low > high


@numba.njit(cache=True)
def _clip(corner: Floats, near: float, polygon: Floats) -> int:
    """The part of a triangle beyond `near`, a polygon of the returned number of corners."""
    count = 0
    for k in range(3):
        this, following = corner[k], corner[(k + 1) % 3]
        if this[2] >= near:
            polygon[count] = this
            count += 1
        if (this[2] >= near) != (following[2] >= near):
            share = (near - this[2]) / (following[2] - this[2])
            for n in range(6):
                polygon[count, n] = this[n] + share * (following[n] - this[n])
            polygon[count, 2] = near
            count += 1
    return count


@numba.njit(cache=True)
def _fill(
    corner: Floats,
    colour: Floats32,
    light: Light,
    far: float,
    nearness: Floats32,
    picture: NDArray[np.uint8],
) -> None:
    """Draw one triangle, with `corner` [3, 6]: column, row from below, nearness and normal."""
    height, width = nearness.shape
    ax, ay, bx = corner[0, 0], corner[0, 1], corner[1, 0]
    by, cx, cy = corner[1, 1], corner[2, 0], corner[2, 1]
    area = (cx - ax) * (by - ay) - (bx - ax) * (cy - ay)
    if abs(area) <= SLIVER:
        return
    farthest = np.float32(1.0 / far)
    inverse = 1.0 / area
    # Weights of the corners change by these from a column to the next.
    step_b, step_c = (ay - cy) * inverse, (by - ay) * inverse
    step_a = -step_b - step_c
    zero_a, zero_b, zero_c = _per_step(step_a), _per_step(step_b), _per_step(step_c)
    # Nearness, and the normal times nearness, change linearly over the picture.
    near_a, near_b, near_c = corner[0, 2], corner[1, 2] - corner[0, 2], corner[2, 2] - corner[0, 2]
    ax3, ay3, az3 = near_a * corner[0, 3], near_a * corner[0, 4], near_a * corner[0, 5]
    bx3, by3 = corner[1, 2] * corner[1, 3] - ax3, corner[1, 2] * corner[1, 4] - ay3
    bz3, cx3 = corner[1, 2] * corner[1, 5] - az3, corner[2, 2] * corner[2, 3] - ax3
    cy3, cz3 = corner[2, 2] * corner[2, 4] - ay3, corner[2, 2] * corner[2, 5] - az3
    red, green, blue = colour[0], colour[1], colour[2]
    direction, ambient = light.direction, light.ambient
    for row in range(max(0, math.ceil(min(ay, by, cy))), min(height - 1, math.floor(max(ay, by, cy))) + 1):
        base_b = ((row - ay) * (cx - ax) + ax * (cy - ay)) * inverse
        base_c = (-(row - ay) * (bx - ax) - ax * (by - ay)) * inverse
        base_a = 1.0 - base_b - base_c
        low, high = _span(base_a, zero_a, 0.0, width - 1.0)
        low, high = _span(base_b, zero_b, low, high)
        low, high = _span(base_c, zero_c, low, high)
        line = height - 1 - row
        for column in range(math.ceil(low - 1e-6), math.floor(high + 1e-6) + 1):
            b, c = base_b + column * step_b, base_c + column * step_c
            if b < 0 or c < 0 or base_a + column * step_a < 0:
                continue
            near = np.float32(near_a + b * near_b + c * near_c)
            if near < nearness[line, column] or near < farthest:
                continue
            nearness[line, column] = near
            x = np.float32(ax3 + b * bx3 + c * cx3)
            y = np.float32(ay3 + b * by3 + c * cy3)
            z = np.float32(az3 + b * bz3 + c * cz3)
            length = ONE / np.sqrt(x * x + y * y + z * z)
            along = (x * direction[0] + y * direction[1] + z * direction[2]) * length
            mirrored = max(ZERO, TWO * along * z * length - direction[2])
            shine = DIFFUSE * max(ZERO, along) + SPECULAR * (mirrored * mirrored)
            picture[line, column, 0] = np.uint8(min(BRIGHTEST, ambient * red + shine * red))
            picture[line, column, 1] = np.uint8(min(BRIGHTEST, ambient * green + shine * green))
            picture[line, column, 2] = np.uint8(min(BRIGHTEST, ambient * blue + shine * blue))


@numba.njit(cache=True)
def _per_step(step: float) -> float:
    """The columns in which a weight that is one falls to zero; 0 for a weight that does not change."""
    return -1.0 / step if step != 0 else 0.0


@numba.njit(cache=True)
def _span(base: float, columns: float, low: float, high: float) -> tuple[float, float]:
    """The part of [low, high] in which a weight is positive that is `base` in column 0."""
    if columns < 0:
        return max(low, base * columns), high
    if columns > 0:
        return low, min(high, base * columns)
    return (low, high) if base >= 0 else (1.0, 0.0)
