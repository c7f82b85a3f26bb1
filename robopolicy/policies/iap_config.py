"""Settings of the Implicit Attention Policy: its observations, what reads them, and its actions."""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, replace
from itertools import chain
from math import ceil, log2, prod

from robopolicy.attention import attention
from robopolicy.naming import check_distinct, check_name, one_of
from robopolicy.policies.controls import (
    MEMORY_ENCODERS,
    NO_ATTENTION,
    NO_VISION,
    PLAIN_ENCODERS,
    Looking,
)
from robopolicy.policies.footholds import Footholds
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
from robopolicy.policies.patches import check_patch, divisors
from robopolicy.policies.recall import Recall
from robopolicy.settings import check_count, check_key, check_number

VARIANTS = ("mask", "rank", "trans", "query", "memory")
MEMORY_FOR = ("blind", "all")  # readers: those without a view, or every one
HEADS = {"choice": 3, "tanh": 1}  # numbers of the head for each action
READING = ("linear", *PLAIN_ENCODERS)
ENCODERS = READING + MEMORY_ENCODERS
CHANNELS = 4  # of `relu`, and of the first convolution; the others have twice as many
LARGEST_READ = 8  # rows and columns that convolutions leave at most
LARGEST_WIDTH, MOST_CAMERAS = 2048, 64
MOST_STEPS = 10_000  # of a memory
OF_PLACES = 4  # sines and cosines of rows and columns: `head_dim` of `query` is a multiple


@dataclass(frozen=True)
class IAPConfig(Looking):
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism, or a control: `none` reads no image and shows what vision
        contributes, `all` reads all tokens and shows what attention contributes.
      cameras: the observed images.
      vectors: the observed vectors.
      readers: which of them determine which action; each action belongs to one output of one reader.
      actions: the names of the entries of an action, in order.
      lateral_inputs: entries of vectors that change sign in a mirror.
      lateral_actions: actions that change sign in a mirror.
      variant: `mask` keeps the image and zeroes every token outside the top; `rank` passes the top tokens to
        the encoder in order of rank, with their places; `trans` passes ordinary attention output; in `query`,
        the places around each foothold are the queries, and attention reads the image there; `memory` reads
        all pixels, and by attention what a camera showed before, where `recall` says so.
      patch: side of a token, pixels; it divides all images.
      head_dim: width of queries and keys.
      keep: share of an image's tokens that `mask` and `rank` keep, in (0, 1]. Below 1, the last weighs 0.
      fade: distance above the last kept rank from which on a token counts in full; the mean rank is 1. A
        short one amplifies rounding errors.
      hidden: width of a hidden layer before the head, 0 for none.
      head: `choice` among -1, 0 and 1 for each action, or among `footholds`; or continuous `tanh`.
      spread: standard deviation of the random part of the first query and key projections.
      calm: first lead of the score of 0, for `choice`; of footholds, over one at the end of an axis.
      normalise: whether running statistics normalise the vectors.
      encoder: what reads the image that `mask` leaves: `linear` means of cells, `relu` the means of four
        learned functions of each pixel, or `cnn`, convolutions of 3 x 3 with a stride of 2.
      footholds: the readers whose outputs choose among footholds. They read the image at these instead of
        means: `linear` scores a foothold by the 3 x 3 places around it, `relu` by four functions of each,
        and `cnn` by four functions of the 3 x 3 places around each. With the head `tanh`, the action is the
        mean of the footholds weighted by a softmax.
      recall: the readers that choose by a memory of a camera. With the variant `memory`, attention is the
        memory; without attention, the encoder is: `map`, a map by hand, or `gru`, a recurrent unit. Each
        reader has a memory of its own.
      memory_decay: factor, at each step, of all that attention or the map has written.
      memory_steps: how many steps exact softmax keeps.
      memory_for: the readers of `recall`: `blind`, those without a view, or `all`, which then read no image.
        Without a memory, as in most controls, readers with a view read the image in both cases.

    Raises ValueError in one line for a setting of another type, out of its range, or at odds with another.
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
    encoder: str = ENCODERS[0]
    footholds: tuple[Footholds, ...] = ()
    recall: tuple[Recall, ...] = ()
    memory_decay: float = 0.97
    memory_steps: int = 40
    memory_for: str = MEMORY_FOR[0]

    def __post_init__(self) -> None:
        check_key(self)
        one_of("variant", self.variant, VARIANTS)
        one_of("encoder", self.encoder, ENCODERS)
        one_of("head", self.head, HEADS)
        one_of("memory_for", self.memory_for, MEMORY_FOR)
        check_count("head_dim", self.head_dim, 1, LARGEST_WIDTH)
        check_count("hidden", self.hidden, 0, LARGEST_WIDTH)
        if not 0.0 < self.keep <= 1.0:
            raise ValueError(f"keep is {self.keep}: it must be a share of the tokens in (0, 1]")
        check_number("fade", self.fade, LEAST_SCALE, LARGEST_SCALE)
        check_number("spread", self.spread, 0.0, LARGEST_SCALE)
        check_number("calm", self.calm, -LARGEST_SCALE, LARGEST_SCALE)
        check_number("memory_decay", self.memory_decay, LEAST_SCALE, 1.0)
        check_count("memory_steps", self.memory_steps, 1, MOST_STEPS)
        self._check_names()
        check_count("patch", self.patch, 1, LARGEST_IMAGE)
        for camera in self.cameras:
            check_patch(self.patch, camera.rows, camera.columns, f"camera {camera.name!r}")
        for reader in self.readers:
            self._check_reader(reader)
        self._check_footholds()
        self._check_recall()
        if self.attends:
            attention(self.attention)
        if self.variant != "mask":
            for name, value in (("attention", NO_ATTENTION), *(("encoder", e) for e in PLAIN_ENCODERS)):
                if getattr(self, name) == value:
                    raise ValueError(f"variant is {self.variant!r}: {name} {value!r} needs variant 'mask'")
        if self.encoder in MEMORY_ENCODERS and self.attends:
            raise ValueError(f"encoder is {self.encoder!r}: it needs attention 'all'")
        if self.encoder != ENCODERS[0] and not self.sees:
            raise ValueError(f"encoder is {self.encoder!r}: attention 'none' reads no image, so leave it out")

    def _check_names(self) -> None:
        for name, least, most in (
            ("cameras", 0, MOST_CAMERAS),
            ("vectors", 0, MOST_CAMERAS),
            ("readers", 1, MOST_NAMES),
            ("actions", 1, MOST_NAMES),
        ):
            check_count(f"the number of {name}", len(getattr(self, name)), least, most)
        for action in self.actions:
            check_name("an action", action)
        for what, names in (
            ("actions", self.actions),
            ("readers", [reader.name for reader in self.readers]),
            ("cameras and vectors", [*(c.name for c in self.cameras), *(v.name for v in self.vectors)]),
            ("entries of vectors", self.entries),
            ("actions of outputs", self.driven),
        ):
            check_distinct(what, names)
        for what, names, allowed in (
            ("lateral_inputs", self.lateral_inputs, self.entries),
            ("lateral_actions", self.lateral_actions, self.actions),
            ("an action of an output", self.driven, self.actions),
        ):
            for name in names:
                one_of(what, name, allowed)
        for action in self.actions:
            if action not in self.driven:
                raise ValueError(f"actions has {action!r}: it must be in an output of a reader")
        views = {view.camera for reader in self.readers for view in reader.views}
        for camera in self.cameras:
            if camera.name not in views:
                raise ValueError(f"cameras has {camera.name!r}: a reader must have a view of it")

    def _check_reader(self, reader: Reader) -> None:
        for output in reader.outputs:
            for name in output.inputs:
                one_of(f"an input of reader {reader.name!r}", name, self.entries)
        for view in reader.views:
            where = f"of camera {view.camera!r} in reader {reader.name!r}"
            width = self.camera(view.camera).columns
            first, last = view.columns or (0, width)
            if not 0 <= first < last <= width:
                raise ValueError(
                    f"columns {where} is {view.columns}: it must be a first column and the one after the "
                    f"last, of the image's {width}"
                )
            part = self._part(view, self.patch)
            if view.cells is not None and not _divide(view.cells, part):
                raise ValueError(
                    f"cells {where} is {view.cells}: they must divide the {part[0]} rows and {part[1]} "
                    f"columns that {self.variant} reads"
                )
        if not (self.encoded(reader) or self.looks_up(reader) or reader.outputs[0].inputs):
            raise ValueError(f"reader {reader.name!r} reads nothing: it must have views or inputs")

    def _check_footholds(self) -> None:
        names = [choice.reader for choice in self.footholds]
        check_distinct("the readers with footholds", names)
        for name in names:
            one_of("a reader with footholds", name, [reader.name for reader in self.readers])
        if names and self.variant == "rank":
            raise ValueError("variant is 'rank': it reads tokens wherever they are, so leave footholds out")
        if names and self.head == "choice":  # else all footholds are equal at first
            check_number("calm, with footholds,", self.calm, LEAST_SCALE, LARGEST_SCALE)
        if self.asks and not names:
            raise ValueError("variant is 'query': its queries are footholds, so it needs footholds")
        if self.asks and self.head_dim % OF_PLACES:
            raise ValueError(
                f"head_dim is {self.head_dim}: the variant 'query' needs a multiple of {OF_PLACES}"
            )
        if names and len(names) < len(self.readers):
            without = next(reader.name for reader in self.readers if reader.name not in names)
            raise ValueError(f"reader {without!r} has no footholds: all readers must have them, or none")
        for reader in self.readers if names else ():
            choice, outputs = self.choice(reader), reader.outputs
            assert choice is not None
            of = f"of reader {reader.name!r}"
            for what, count, needed in (
                ("views", len(reader.views), min(1, len(reader.views))),
                ("actions in an output", len(outputs[0].actions), choice.actions),
                ("entries nominal", len(choice.nominal), len(outputs)),
                ("outputs with inputs", sum(bool(output.inputs) for output in outputs), len(outputs)),
                ("footholds", len(choice.moves), len(self.footholds[0].moves)),
            ):
                if count != needed:
                    raise ValueError(f"the number of {what} {of} is {count}: its footholds need {needed}")
            for output in outputs:
                if output.mirrored and not set(output.actions[1:]) <= set(self.lateral_actions):
                    raise ValueError(
                        f"lateral_actions lacks {output.actions[1]!r}: it is of a mirrored output {of}"
                    )
            for entry in (*choice.nominal, *choice.aside):
                one_of(f"an entry of the footholds {of}", entry, self.entries)

    def _check_recall(self) -> None:
        check_distinct("the readers with a memory", [recall.reader for recall in self.recall])
        for name, value in (("variant", "memory"), *(("encoder", encoder) for encoder in MEMORY_ENCODERS)):
            if getattr(self, name) == value and not self.recall:
                raise ValueError(f"{name} is {value!r}: it needs recall, as with the front camera alone")
        for recall in self.recall:
            of = f"of the memory of reader {recall.reader!r}"
            one_of("a reader with a memory", recall.reader, [reader.name for reader in self.readers])
            one_of(f"camera {of}", recall.camera, [camera.name for camera in self.cameras])
            for entry in recall.odometry:
                one_of(f"odometry {of}", entry, self.entries)
            one_of("a reader with a memory", recall.reader, [choice.reader for choice in self.footholds])
        remembering = {recall.reader for recall in self.recall}
        for reader in self.readers:
            if self.memory_for == "all" and reader.name not in remembering:
                raise ValueError(
                    f"memory_for is 'all': reader {reader.name!r} needs recall, which the stepping "
                    "stones have with the front camera alone, such as on the preset front"
                )
            if self.memory_for == "blind" and reader.views and reader.name in remembering:
                raise ValueError(
                    f"recall has reader {reader.name!r}: it has a view, so memory_for must be 'all'"
                )

    def controls(self) -> tuple[IAPConfig, ...]:
        """The same policy without attention, with each encoder, and without images if it has other inputs."""
        plain = replace(self, attention=NO_ATTENTION, variant="mask", encoder=ENCODERS[0])
        controls = [replace(plain, encoder=encoder) for encoder in (ENCODERS if self.recall else READING)]
        if all(reader.outputs[0].inputs for reader in self.readers):
            controls.append(replace(plain, attention=NO_VISION))
        return tuple(controls)

    def choice(self, reader: Reader) -> Footholds | None:
        """The footholds that a reader's outputs choose among, if they do."""
        return next((each for each in self.footholds if each.reader == reader.name), None)

    def looks_up(self, reader: Reader) -> bool:
        """Whether it reads its image at footholds."""
        return self.sees and bool(self.views_of(reader)) and self.choice(reader) is not None

    def views_of(self, reader: Reader) -> tuple[View, ...]:
        """What a reader reads of the present images: nothing if it reads a memory instead."""
        return () if self.recall_of(reader) else reader.views

    @property
    def asks(self) -> bool:
        """Whether its legs query the image by attention."""
        return self.attends and self.variant == "query"

    @property
    def ranks(self) -> bool:
        """Whether attention is over the tokens of an image, of which the encoder reads what is left."""
        return self.attends and self.variant in ("mask", "rank", "trans")

    def recall_of(self, reader: Reader) -> Recall | None:
        """The memory that a reader's outputs read, if they do."""
        if not (self.variant == "memory" if self.attends else self.sees and self.encoder in MEMORY_ENCODERS):
            return None
        return next((recall for recall in self.recall if recall.reader == reader.name), None)

    @property
    def border(self) -> int:
        """Number of places that are read beyond each end of the footholds."""
        return 2 if self.encoder == "cnn" else 1

    @property
    def entries(self) -> tuple[str, ...]:
        """The entries of all vectors."""
        return tuple(chain.from_iterable(vector.entries for vector in self.vectors))

    @property
    def vectors_read(self) -> tuple[Vector, ...]:
        """The vectors of which a reader reads an entry."""
        read = {name for reader in self.readers for output in reader.outputs for name in output.inputs}
        read |= {name for choice in self.footholds for name in (*choice.nominal, *choice.aside)}
        for recall in filter(None, map(self.recall_of, self.readers)):
            read |= set(recall.odometry)
        return tuple(vector for vector in self.vectors if read & set(vector.entries))

    @property
    def driven(self) -> tuple[str, ...]:
        """The actions in the order of readers and their outputs."""
        return tuple(a for reader in self.readers for output in reader.outputs for a in output.actions)

    @property
    def tokens(self) -> int:
        """Number of tokens that all readers together attend to."""
        return sum(self.token_count(view) for reader in self.readers for view in self.views_of(reader))

    @property
    def patches(self) -> list[int]:
        """Every `patch` that suits the images and cells, pixels."""
        views = [view for reader in self.readers for view in reader.views if view.cells is not None]
        return [
            patch
            for patch in divisors(side for camera in self.cameras for side in (camera.rows, camera.columns))
            if all(_divide(view.cells or (), self._part(view, patch)) for view in views)
        ]

    def camera(self, name: str) -> Camera:
        """The camera called `name`. Raises ValueError if there is none."""
        cameras = {camera.name: camera for camera in self.cameras}
        return cameras[one_of("camera", name, cameras)]

    def grid(self, view: View) -> tuple[int, int]:
        """Rows and columns of tokens."""
        camera = self.camera(view.camera)
        return camera.rows // self.patch, camera.columns // self.patch

    def token_count(self, view: View) -> int:
        """Number of tokens of a camera's image."""
        return prod(self.grid(view))

    def kept(self, view: View) -> int:
        """Number of tokens that `mask` and `rank` keep."""
        return max(1, round(self.keep * self.token_count(view)))

    def encoded(self, reader: Reader) -> int:
        """Number of values that each output of a reader reads of its cameras, footholds apart."""
        return (
            sum(map(self._encoded, self.views_of(reader))) if self.sees and not self.looks_up(reader) else 0
        )

    def width(self, view: View) -> int:
        """Numbers for each pixel of `mask`, or each token of `trans`."""
        return self.head_dim if self.variant == "trans" else self.camera(view.camera).channels

    def _encoded(self, view: View) -> int:
        channels = self.camera(view.camera).channels
        if self.variant == "rank":
            return self.kept(view) * (self.patch**2 * channels + 2)
        rows, columns = self._part(view, self.patch)
        if self.encoder == "cnn":
            stride = 2 ** self.convolutions(view)
            return ceil(rows / stride) * ceil(columns / stride) * 2 * CHANNELS
        return prod(view.cells or (rows, 1)) * (CHANNELS if self.encoder == "relu" else self.width(view))

    def convolutions(self, view: View) -> int:
        """Number of convolutions of `cnn`: two or more, until few rows and columns are left."""
        return max(2, ceil(log2(max(self._part(view, self.patch)) / LARGEST_READ)))

    def region(self, view: View, patch: int) -> tuple[int, int]:
        """The columns [first, last) that are read: of pixels for `mask`, of tokens for `trans`."""
        first, last = view.columns or (0, self.camera(view.camera).columns)
        return (first // patch, -(-last // patch)) if self.variant == "trans" else (first, last)

    def _part(self, view: View, patch: int) -> tuple[int, int]:
        """Rows and columns that are read, of pixels or of tokens."""
        first, last = self.region(view, patch)
        rows = self.camera(view.camera).rows
        return rows // patch if self.variant == "trans" else rows, last - first


SETTINGS = tuple(field.name for field in fields(IAPConfig) if field.default is not MISSING)


def _divide(cells: tuple[int, ...], sizes: tuple[int, int]) -> bool:
    return all(count > 0 and size % count == 0 for count, size in zip(cells, sizes, strict=True))
