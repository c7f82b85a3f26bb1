"""Settings of the Implicit Attention Policy: what it observes, what reads it, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from robopolicy.attention import attention
from robopolicy.naming import one_of
from robopolicy.policies.iap_parts import (
    LARGEST_IMAGE,
    LARGEST_SCALE,
    LEAST_SCALE,
    MOST_NAMES,
    Camera,
    Reader,
    Vector,
    View,
)
from robopolicy.policies.names import check_distinct, check_name
from robopolicy.settings import check_count, check_number

VARIANTS = ("mask", "rank", "trans")
HEADS = {"choice": 3, "tanh": 1}  # numbers of the head for each action
NO_VISION = "none"
LARGEST_WIDTH, MOST_CAMERAS = 2048, 64


@dataclass(frozen=True)
class IAPConfig:
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism; `none` makes a policy that is given no image, the control that
        tells what vision is worth.
      cameras: the images that are observed.
      vectors: the vectors that are observed.
      readers: which of them leads to which action; each action belongs to one output of one reader.
      actions: the names of the entries of an action, in order.
      lateral_inputs: entries of vectors that change sign in a mirror.
      lateral_actions: actions that do.
      variant: `mask` keeps the image and zeroes every token outside the top; `rank` hands the top tokens to
        the encoder in order of rank, with their places; `trans` hands on ordinary attention output.
      patch: side of a token, in pixels; it divides all images.
      head_dim: width of queries and keys.
      keep: share of an image's tokens that `mask` and `rank` keep.
      fade: how far above the last kept rank a token counts in full; a token attended to like any other has
        rank one.
      hidden: width of a hidden layer before the head, 0 for none.
      head: `choice` among -1, 0 and 1 for each action, or continuous `tanh`.
      spread: standard deviation of the random part of the first query and key projections.
      calm: what the score of 0 leads by at first, for `choice`.
      normalise: whether vectors are normalised by running statistics.
    """

    attention: str
    cameras: tuple[Camera, ...]
    vectors: tuple[Vector, ...]
    readers: tuple[Reader, ...]
    actions: tuple[str, ...]
    lateral_inputs: tuple[str, ...] = ()
    lateral_actions: tuple[str, ...] = ()
    variant: str = "mask"
    patch: int = 2
    head_dim: int = 8
    keep: float = 0.5
    fade: float = 0.05
    hidden: int = 0
    head: str = "choice"
    spread: float = 0.2
    calm: float = 0.3
    normalise: bool = False

    def __post_init__(self) -> None:
        one_of("variant", self.variant, VARIANTS)
        one_of("head", self.head, HEADS)
        check_count("head_dim", self.head_dim, 1, LARGEST_WIDTH)
        check_count("hidden", self.hidden, 0, LARGEST_WIDTH)
        if not 0.0 < self.keep <= 1.0:
            raise ValueError(f"keep is {self.keep}: it must be a share of the tokens in (0, 1]")
        check_number("fade", self.fade, LEAST_SCALE, LARGEST_SCALE)
        check_number("spread", self.spread, 0.0, LARGEST_SCALE)
        check_number("calm", self.calm, -LARGEST_SCALE, LARGEST_SCALE)
        self._check_names()
        check_count("patch", self.patch, 1, LARGEST_IMAGE)
        for camera in self.cameras:
            if camera.rows % self.patch or camera.columns % self.patch:
                raise ValueError(
                    f"patch is {self.patch}: it must divide the {camera.rows} rows and {camera.columns} "
                    f"columns of camera {camera.name!r}"
                )
        for reader in self.readers:
            self._check_reader(reader)
        if self.sees:
            attention(self.attention)

    def _check_names(self) -> None:
        for name, most in (("cameras", MOST_CAMERAS), ("vectors", MOST_CAMERAS), ("readers", MOST_NAMES)):
            check_count(f"the number of {name}", len(getattr(self, name)), name == "readers", most)
        check_count("the number of actions", len(self.actions), 1, MOST_NAMES)
        for action in self.actions:
            check_name("an action", action)
        check_distinct("actions", self.actions)
        check_distinct("readers", [reader.name for reader in self.readers])
        check_distinct(
            "cameras and vectors", [*(c.name for c in self.cameras), *(v.name for v in self.vectors)]
        )
        check_distinct("entries of vectors", self.entries)
        for name in self.lateral_inputs:
            one_of("lateral_inputs", name, self.entries)
        for name in self.lateral_actions:
            one_of("lateral_actions", name, self.actions)
        driven = self.driven
        for action in driven:
            one_of("an action of an output", action, self.actions)
        check_distinct("actions of outputs", driven)
        for action in self.actions:
            if action not in driven:
                raise ValueError(f"actions has {action!r}: no output of a reader leads to it")
        read = {view.camera for reader in self.readers for view in reader.views}
        for camera in self.cameras:
            if camera.name not in read:
                raise ValueError(f"cameras has {camera.name!r}: no reader reads it")

    def _check_reader(self, reader: Reader) -> None:
        for output in reader.outputs:
            for name in output.inputs:
                one_of(f"an input of reader {reader.name!r}", name, self.entries)
        for view in reader.views:
            where = f"of camera {view.camera!r} in reader {reader.name!r}"
            camera = self.camera(view.camera)
            if view.columns is not None:
                first, last = view.columns
                if not 0 <= first < last <= camera.columns:
                    raise ValueError(
                        f"columns {where} is {view.columns}: it must be a first column and the one after the "
                        f"last, of the image's {camera.columns}"
                    )
            if view.cells is not None:
                rows, columns = self._part(view, self.patch)
                for cells, size in zip(view.cells, (rows, columns), strict=True):
                    if cells < 1 or size % cells:
                        raise ValueError(
                            f"cells {where} is {view.cells}: they must divide the {rows} rows and {columns} "
                            f"columns that {self.variant} reads"
                        )
        if not (self.encoded(reader) or reader.outputs[0].inputs):
            raise ValueError(f"reader {reader.name!r} reads nothing: it must have views or inputs")

    @property
    def sees(self) -> bool:
        """Whether it is given images."""
        return self.attention != NO_VISION

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of all vectors."""
        return tuple(chain.from_iterable(vector.entries for vector in self.vectors))

    @property
    def driven(self) -> tuple[str, ...]:
        """The actions in the order of readers and their outputs."""
        return tuple(a for reader in self.readers for output in reader.outputs for a in output.actions)

    @property
    def tokens(self) -> int:
        """How many tokens all readers together attend to."""
        return sum(self.token_count(view) for reader in self.readers for view in reader.views)

    @property
    def patches(self) -> list[int]:
        """Every `patch` that it can have."""
        sides = [side for camera in self.cameras for side in (camera.rows, camera.columns)]
        views = [view for reader in self.readers for view in reader.views if view.cells is not None]
        return [
            patch
            for patch in range(1, min(sides, default=0) + 1)
            if not any(side % patch for side in sides)
            and not any(
                size % cells
                for view in views
                for size, cells in zip(self._part(view, patch), view.cells or (), strict=True)
            )
        ]

    def camera(self, name: str) -> Camera:
        """The camera called `name`; raises ValueError where there is none."""
        one_of("camera", name, [camera.name for camera in self.cameras])
        return next(camera for camera in self.cameras if camera.name == name)

    def grid(self, view: View) -> tuple[int, int]:
        """Rows and columns of tokens."""
        camera = self.camera(view.camera)
        return camera.rows // self.patch, camera.columns // self.patch

    def token_count(self, view: View) -> int:
        """How many tokens a camera's image is cut into."""
        rows, columns = self.grid(view)
        return rows * columns

    def kept(self, view: View) -> int:
        """How many tokens `mask` and `rank` keep."""
        return max(1, round(self.keep * self.token_count(view)))

    def region(self, view: View) -> tuple[int, int]:
        """First and one past the last column that is read: of pixels for `mask`, of tokens for `trans`."""
        return self._region(view, self.patch)

    def encoded(self, reader: Reader) -> int:
        """How many numbers a reader reads of its cameras."""
        return sum(map(self._encoded, reader.views)) if self.sees else 0

    def _encoded(self, view: View) -> int:
        camera = self.camera(view.camera)
        if self.variant == "rank":
            return self.kept(view) * (self.patch**2 * camera.channels + 2)
        rows, columns = view.cells or (self._part(view, self.patch)[0], 1)
        return rows * columns * (self.head_dim if self.variant == "trans" else camera.channels)

    def _region(self, view: View, patch: int) -> tuple[int, int]:
        first, last = view.columns or (0, self.camera(view.camera).columns)
        return (first // patch, -(-last // patch)) if self.variant == "trans" else (first, last)

    def _part(self, view: View, patch: int) -> tuple[int, int]:
        """Rows and columns that are read, of pixels or of tokens."""
        first, last = self._region(view, patch)
        rows = self.camera(view.camera).rows
        return rows // patch if self.variant == "trans" else rows, last - first
