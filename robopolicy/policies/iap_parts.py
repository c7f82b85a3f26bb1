"""Parts of an Implicit Attention Policy's settings: its observations, and what reads them.

Every part raises ValueError in one line for a setting of another type or out of its range.
"""

from __future__ import annotations

from dataclasses import dataclass

from robopolicy.naming import check_distinct, check_name
from robopolicy.settings import check_count, check_key, check_number

LARGEST_IMAGE, MOST_NAMES = 2048, 1024
LEAST_SCALE, LARGEST_SCALE = 1e-6, 1e6


@dataclass(frozen=True)
class Camera:
    """An observed image.

    Attributes:
      name: of the observation.
      rows, columns: its size in pixels.
      channels: 1 for depths [rows, columns] (m, float32), 3 for colours [rows, columns, 3] (uint8).
      scale: the depth (m) that the policy reads as 1; without effect on colours, which lie in [-1, 1].
      reference: whether depths are relative to an image in the features, such as level ground.
      lowest: the least value that a policy reads of a depth, in units of scale. At 0, all that is nearer than
        the reference looks like the reference, so that a wrong pixel cannot make up for a gap.
    """

    name: str
    rows: int
    columns: int
    channels: int = 1
    scale: float = 1.0
    reference: bool = False
    lowest: float = -1.0

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a camera", self.name)
        for side in ("rows", "columns"):
            check_count(f"{side} of camera {self.name!r}", getattr(self, side), 1, LARGEST_IMAGE)
        if self.channels not in (1, 3):
            raise ValueError(f"channels of camera {self.name!r} is {self.channels}: it must be 1 or 3")
        check_number(f"scale of camera {self.name!r}", self.scale, LEAST_SCALE, LARGEST_SCALE)
        check_number(f"lowest of camera {self.name!r}", self.lowest, -1.0, 0.0)
        if self.reference and self.channels != 1:
            raise ValueError(f"reference of camera {self.name!r} is True: only depths may have one")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the observation."""
        return (self.rows, self.columns) if self.channels == 1 else (self.rows, self.columns, self.channels)

    @property
    def dtype(self) -> str:
        """Of the observation."""
        return "float32" if self.channels == 1 else "uint8"


@dataclass(frozen=True)
class Vector:
    """An observed vector: the observation's name, and the name of each of its entries."""

    name: str
    entries: tuple[str, ...]

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a vector", self.name)
        check_count(f"the number of entries of vector {self.name!r}", len(self.entries), 1, MOST_NAMES)
        for entry in self.entries:
            check_name(f"an entry of vector {self.name!r}", entry)


@dataclass(frozen=True)
class View:
    """What a reader reads of a camera. Variant `rank` reads the tokens themselves, wherever they are.

    Attributes:
      camera: its name.
      columns: the image columns [first, last) that are read, None for all. A mirrored output reads those at
        the same distance from the other side.
      cells: rows and columns of cells of the part that is read; the mean of each is read. None is one cell
        for each row: of pixels for `mask`, of tokens for `trans`.
    """

    camera: str
    columns: tuple[int, int] | None = None
    cells: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_key(self)


@dataclass(frozen=True)
class Output:
    """Actions that are computed together.

    Attributes:
      actions: their names.
      inputs: entries of vectors that are read.
      mirrored: whether images, inputs and actions are mirror images of those of the other outputs.
    """

    actions: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    mirrored: bool = False

    def __post_init__(self) -> None:
        check_key(self)


@dataclass(frozen=True)
class Reader:
    """One set of weights, and all outputs that are computed with it.

    Attributes:
      name: of its parameters.
      outputs: all with the same number of actions, and of inputs.
      views: what all outputs read of cameras.
    """

    name: str
    outputs: tuple[Output, ...]
    views: tuple[View, ...] = ()

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a reader", self.name)
        where = f"of reader {self.name!r}"
        check_count(f"the number of outputs {where}", len(self.outputs), 1, MOST_NAMES)
        for part in ("actions", "inputs"):
            sizes = {len(getattr(output, part)) for output in self.outputs}
            if len(sizes) > 1:
                raise ValueError(f"outputs {where} have {sorted(sizes)} {part}: all must have as many")
        if not self.outputs[0].actions:
            raise ValueError(f"outputs {where} have no actions: they must have 1 or more")
        check_distinct(f"the views {where}", [view.camera for view in self.views])
