"""An Implicit Attention Policy for any task, from the shapes of its observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.iap_parts import Camera, Output, Reader, Vector, View

MOST_CELLS = 8  # rows and columns of cells of an image


def default_iap(
    attention: str,
    shapes: Mapping[str, tuple[int, ...]],
    actions: Sequence[str],
    entries: Mapping[str, Sequence[str]] | None = None,
    **settings: Any,
) -> IAPConfig:
    """A policy for any task: one reader, which reads all images and vectors for all actions.

    Args:
      attention: spec of the mechanism, or `none`.
      shapes: of the observations by name: [N] for a vector, [rows, columns] for depths (m),
        [rows, columns, 3] for colours.
      actions: names of an action's entries, in order.
      entries: names of the entries of vectors, by observation; NAME_0, NAME_1 and so on where left out.
      settings: of `IAPConfig`, where they are not to be its own; `head` is `tanh`, and `patch` the largest of
        4, 2 and 1 that divides all images.

    Raises ValueError for an observation of another shape, and what `IAPConfig` raises.
    """
    cameras, vectors, given = [], [], entries or {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            names = given.get(name) or [f"{name}_{index}" for index in range(shape[0])]
            if len(names) != shape[0]:
                raise ValueError(f"entries of {name!r} are {len(names)}: the observation has {shape[0]}")
            vectors.append(Vector(name, tuple(names)))
        elif len(shape) == 2 or (len(shape) == 3 and shape[2] == 3):
            cameras.append(Camera(name, shape[0], shape[1], 1 if len(shape) == 2 else 3))
        else:
            raise ValueError(
                f"observation {name!r} has shape {list(shape)}: it must be [N], [rows, columns] or "
                "[rows, columns, 3]"
            )
    sides = [side for camera in cameras for side in (camera.rows, camera.columns)]
    patch = next(size for size in (4, 2, 1) if not any(side % size for side in sides))
    settings = {"head": "tanh", "patch": patch, **settings}
    unit = settings["patch"] if settings.get("variant") == "trans" else 1
    views = tuple(View(c.name, cells=(_cells(c.rows // unit), _cells(c.columns // unit))) for c in cameras)
    inputs = tuple(chain.from_iterable(vector.entries for vector in vectors))
    reader = Reader("all", (Output(tuple(actions), inputs),), views)
    return IAPConfig(attention, tuple(cameras), tuple(vectors), (reader,), tuple(actions), **settings)


def _cells(size: int) -> int:
    """The most cells, up to `MOST_CELLS`, that divide `size`."""
    return next(count for count in range(min(MOST_CELLS, max(size, 1)), 0, -1) if size % count == 0)
