"""An Implicit Attention Policy for any task, from the shapes of its observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from robopolicy.naming import check_settings, one_of, shown
from robopolicy.policies.iap_config import SETTINGS, IAPConfig
from robopolicy.policies.iap_parts import LARGEST_IMAGE, Camera, Output, Reader, Vector, View
from robopolicy.policies.patches import divisors
from robopolicy.settings import check_count

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
      attention: spec of the mechanism, or a control: `none` or `all`, as in `IAPConfig`.
      shapes: of the observations by name: [N] for a vector, [rows, columns] for depths (m),
        [rows, columns, 3] for colours.
      actions: names of an action's entries, in order.
      entries: names of the entries of vectors, by observation; NAME_0, NAME_1 and so on by default.
      settings: of `IAPConfig`, in place of its defaults; here `head` is `tanh` by default, and `patch` the
        largest of 4, 2 and 1 that divides all images.

    Raises ValueError for an observation of another shape, for entries of anything but a vector and for an
    unknown setting, and as `IAPConfig` does.
    """
    check_settings(settings, SETTINGS)
    entries = entries or {}
    for what, value in (("shapes", shapes), ("entries", entries)):
        if not isinstance(value, Mapping):
            raise ValueError(f"{what} is {shown(value)}: it must be a mapping from names of observations")
    sequences = {"actions": actions, **{f"entries of {name!r}": entries[name] for name in entries}}
    for what, names in sequences.items():
        if isinstance(names, str) or not isinstance(names, Sequence):
            raise ValueError(f"{what} is {shown(names)}: it must be a sequence of names")
    cameras, vectors = [], []
    for name, shape in shapes.items():
        match shape:
            case [int(size)]:
                names = entries.get(name) or [f"{name}_{index}" for index in range(size)]
                if len(names) != size:
                    raise ValueError(f"entries of {name!r} are {len(names)}: the observation has {size}")
                vectors.append(Vector(name, tuple(names)))
            case [rows, columns]:
                cameras.append(Camera(name, rows, columns))
            case [rows, columns, 3]:
                cameras.append(Camera(name, rows, columns, 3))
            case _:
                raise ValueError(
                    f"observation {name!r} has shape {shown(shape)}: it must be [N], [rows, columns] or "
                    "[rows, columns, 3]"
                )
    for name in entries:
        one_of("entries", name, [vector.name for vector in vectors])
    fitting = divisors(side for camera in cameras for side in (camera.rows, camera.columns))
    patch = max({1, 2, 4}.intersection(fitting), default=4)
    settings = {"head": "tanh", "patch": patch, **settings}
    check_count("patch", settings["patch"], 1, LARGEST_IMAGE)
    unit = settings["patch"] if settings.get("variant") == "trans" else 1
    views = tuple(View(c.name, cells=(_cells(c.rows // unit), _cells(c.columns // unit))) for c in cameras)
    inputs = tuple(chain.from_iterable(vector.entries for vector in vectors))
    reader = Reader("all", (Output(tuple(actions), inputs),), views)
    return IAPConfig(attention, tuple(cameras), tuple(vectors), (reader,), tuple(actions), **settings)


def _cells(size: int) -> int:
    """The most cells, up to `MOST_CELLS`, that divide `size`."""
    return next(count for count in range(min(MOST_CELLS, max(size, 1)), 0, -1) if size % count == 0)
