"""A scene of bodies that stand still and bodies that move, and pictures of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.envs.drawing.meshes import Mesh
from robopolicy.envs.drawing.rasteriser import Instances, Lens, Light, Triangles, draw
from robopolicy.envs.drawing.textures import Texture
from robopolicy.envs.physics.base import NEAR, Array, Lighting, View
from robopolicy.settings import check_count, check_number

WHITE = 255
LARGEST = 8192  # pixels a side
CAMERAS = 2  # whose pictures of what stands still are kept: that of a policy, and that of a film
VERTICAL = 1e-6  # sine of a view's angle to the vertical, below which "upright" has no meaning


class Part(NamedTuple):
    """A body: its shape and its colour (red, green, blue and perhaps alpha, from 0 to 1).

    A `texture` lies over the world's x and y (m), on a body that stands still and has no colour of zero.
    """

    mesh: Mesh
    colour: tuple[float, ...]
    texture: Texture | None = None


def pose(place: Sequence[float] | Array, turn: Array | None = None) -> Array:
    """The pose [4, 4] (to world) of a body at `place` [3] (m), turned by `turn` [3, 3]."""
    out = np.eye(4)
    out[:3, 3] = place
    if turn is not None:
        out[:3, :3] = turn
    return out


class Scene:
    """Draws `still` bodies once for a camera, and `moving` ones in each picture."""

    def __init__(
        self,
        still: Sequence[tuple[Part, Array]],
        moving: Sequence[Part],
        lighting: Lighting,
        background: Texture | None = None,
    ) -> None:
        """`still` bodies have their poses [4, 4] (to world); bad ones raise ValueError, in one line.

        `background` lies over the picture's right and up, in halves of its height from its middle; None for
        white.
        """
        for part in moving:
            if part.texture is not None:
                raise ValueError("moving has a part with a texture: only parts that stand still have one")
        self._textured = [
            (_compiled([part]), _checked([pose], 1), part) for part, pose in still if part.texture is not None
        ]
        plain = [(part, pose) for part, pose in still if part.texture is None]
        self._still = _compiled([part for part, _ in plain])
        self._still_poses = _checked([pose for _, pose in plain], len(plain))
        self._background = background
        self._moving, self._count = _compiled(moving), len(moving)
        direction = np.asarray(lighting.direction, float)
        direction = direction / np.linalg.norm(direction)
        self._light = Light(direction.astype(np.float32), np.float32(lighting.ambient))
        self._far = lighting.far
        self._drawn: dict[object, tuple[NDArray[np.float32], NDArray[np.uint8]]] = {}  # by camera
        self._nearness = np.empty((0, 0), np.float32)

    def picture(self, view: View, width: int, height: int, poses: Array) -> NDArray[np.uint8]:
        """A picture [height, width, 3] with the moving bodies at `poses` [M, 4, 4] (to world).

        Raises ValueError, in one line, for a bad size, view or poses, and for a view from the inside of a
        body.
        """
        check_count("width", width, 1, LARGEST)
        check_count("height", height, 1, LARGEST)
        lens, places = _lens(view, height, self._far), _checked(poses, self._count)
        camera = (lens.rotation.tobytes(), lens.eye.tobytes(), lens.scale, width, height)
        if camera not in self._drawn:
            nearness = np.zeros((height, width), np.float32)
            background = np.full((height, width, 3), WHITE, np.uint8)
            self._draw_still(lens, nearness, background)
            while len(self._drawn) >= CAMERAS:
                del self._drawn[next(iter(self._drawn))]
            self._drawn[camera] = nearness, background
        nearness, background = self._drawn[camera] = self._drawn.pop(camera)  # the last one used comes last
        out = background.copy()
        if self._nearness.shape != nearness.shape:
            self._nearness = np.empty_like(nearness)  # used again: new memory costs a tenth of a picture
        np.copyto(self._nearness, nearness)
        self._draw(self._moving, places, lens, self._nearness, out)
        return out

    def _draw_still(self, lens: Lens, nearness: NDArray[np.float32], picture: NDArray[np.uint8]) -> None:
        for bodies, poses, part in self._textured:
            before = nearness.copy()
            self._draw(bodies, poses, lens, nearness, picture)
            seen = np.nonzero(nearness != before)
            plain = np.array(part.colour[:3])
            assert part.texture is not None
            colours = part.texture.over(plain, _places(lens, nearness, *seen))
            # The shading of a pixel is that of its plain colour.
            picture[seen] = np.minimum(picture[seen] * (colours / plain), WHITE)
        self._draw(self._still, self._still_poses, lens, nearness, picture)
        if self._background is not None:
            seen = np.nonzero(nearness == 0)
            colours = self._background.over(np.ones(3), _rays(nearness.shape, *seen) / nearness.shape[0] * 2)
            picture[seen] = np.clip(WHITE * colours, 0, WHITE)

    def _draw(
        self,
        bodies: tuple[Triangles, Instances],
        poses: Array,
        lens: Lens,
        nearness: NDArray[np.float32],
        picture: NDArray[np.uint8],
    ) -> None:
        if len(poses) and draw(*bodies, poses, lens, self._light, nearness, picture) >= 0:
            place = ", ".join(f"{value:g}" for value in lens.eye)
            raise ValueError(f"view has its eye at ({place}), which is inside of a body")


def _rays(shape: tuple[int, ...], rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Array:
    """Pixels to the right of and above a picture's middle, [N, 2], of the samples of these pixels."""
    height, width = shape
    return np.stack([columns - width / 2, height - 1 - rows - height / 2], axis=1)


def _places(
    lens: Lens, nearness: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> Array:
    """The world's x and y (m) of what these pixels show, [N, 2]."""
    ahead = 1.0 / nearness[rows, columns].astype(float)
    right, up = (_rays(nearness.shape, rows, columns) * (ahead / lens.scale)[:, None]).T
    axes = lens.rotation[:, :2]
    return np.stack(
        [lens.eye[a] + right * axes[0, a] + up * axes[1, a] - ahead * axes[2, a] for a in (0, 1)], 1
    )


def _checked(poses: Sequence[Array] | Array, count: int) -> Array:
    """`poses` of `count` bodies as [count, 4, 4] floats; the compiled program checks nothing."""
    out = np.ascontiguousarray(poses, float) if len(poses) else np.empty((0, 4, 4))
    if out.shape != (count, 4, 4):
        raise ValueError(f"poses has shape {list(out.shape)}: it must be {[count, 4, 4]}")
    if not np.isfinite(out).all():
        raise ValueError("poses holds NaN or infinity: every entry must be a number")
    return out


def _lens(view: View, height: int, far: float) -> Lens:
    """The camera of `view`, upright unless it looks straight up or down: then its right is -y."""
    check_number("view.field_of_view", view.field_of_view, 1.0, 170.0)
    eye = np.asarray(view.eye, float)
    back = eye - np.asarray(view.target, float)
    distance = np.linalg.norm(back)
    if not (np.isfinite(distance) and distance > 0):
        raise ValueError(f"view is {view}: its target must be another point than its eye")
    back /= distance
    right = np.cross([0.0, 0.0, 1.0], back)
    length = np.linalg.norm(right)
    right = right / length if length > VERTICAL else np.array([0.0, -1.0, 0.0])
    scale = height / 2 / math.tan(math.radians(view.field_of_view) / 2)
    return Lens(np.stack([right, np.cross(back, right), back]), eye, scale, NEAR, far)


def _compiled(parts: Sequence[Part]) -> tuple[Triangles, Instances]:
    """The parts in the arrays that are drawn from; parts of one mesh share it."""
    meshes = list({id(part.mesh): part.mesh for part in parts}.values())
    sizes = [[len(mesh.vertices), len(mesh.normals), len(mesh.corners)] for mesh in meshes]
    ends = np.cumsum([[0, 0, 0], *sizes], axis=0)
    triangles = Triangles(
        np.concatenate([np.empty((0, 3)), *(mesh.vertices for mesh in meshes)]),
        np.concatenate([np.empty((0, 3)), *(mesh.normals for mesh in meshes)]),
        _shifted([mesh.corners for mesh in meshes], ends[:-1, 0]),
        _shifted([mesh.corner_normals for mesh in meshes], ends[:-1, 1]),
        np.concatenate([np.empty((0, 4)), *(_planes(mesh) for mesh in meshes)]),
    )
    index = {id(mesh): row for row, mesh in enumerate(meshes)}
    rows = np.array([index[id(part.mesh)] for part in parts], int)
    ranges = np.column_stack([ends[rows, 0], ends[rows + 1, 0], ends[rows, 2], ends[rows + 1, 2]])
    spheres = np.array([_sphere(part.mesh) for part in parts]).reshape(-1, 4)
    colours = np.array([part.colour[:3] for part in parts], np.float32).reshape(-1, 3)
    return triangles, Instances(ranges.astype(np.int32), spheres, np.floor(255 * colours))


def _shifted(indices: list[NDArray[np.int32]], firsts: NDArray[np.int64]) -> NDArray[np.int32]:
    moved = [rows + first for rows, first in zip(indices, firsts, strict=True)]
    return np.concatenate([np.empty((0, 3)), *moved]).astype(np.int32)


def _sphere(mesh: Mesh) -> Array:
    """Centre and radius [4] of a sphere around a mesh."""
    center = (mesh.vertices.min(axis=0) + mesh.vertices.max(axis=0)) / 2
    return np.append(center, np.linalg.norm(mesh.vertices - center, axis=1).max())


def _planes(mesh: Mesh) -> Array:
    a, b, c = (mesh.vertices[mesh.corners[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    return np.column_stack([normals, (normals * a).sum(axis=1)])
