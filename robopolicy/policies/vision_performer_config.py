"""Settings of the Vision-Performer: its observations, its sizes, and the shapes of its statistics.

All classes raise ValueError in one line for a setting of another type or out of its range.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from robopolicy.attention import attention
from robopolicy.naming import check_distinct, check_name, one_of
from robopolicy.policies.controls import NO_ATTENTION, NO_VISION, PLAIN_ENCODERS, Looking
from robopolicy.policies.energy import HEADS, MOST, HeadConfig
from robopolicy.policies.multihead import tempered, unit
from robopolicy.policies.patches import check_patch, divisors
from robopolicy.settings import check_count, check_key

ENCODERS = ("transformer", *PLAIN_ENCODERS)
NORMS = {"unit": unit, "tempered": tempered}
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 32, "depth": 1, "heads": 2, "mlp": 64, "encoding": 32, "hidden": 32},
    "small": {"width": 48, "depth": 2, "heads": 3, "mlp": 96, "encoding": 64, "hidden": 64},
    "base": {"width": 192, "depth": 4, "heads": 12, "mlp": 384, "encoding": 192, "hidden": 128},
}
LEAST_TOKENS, MOST_TOKENS = 12, 50  # a side, with the default patch
MOST_INPUTS, LARGEST_IMAGE, LARGEST_VECTOR = 64, 4096, 1024
LARGEST = {
    **{"patch": LARGEST_IMAGE, "width": 2048, "depth": 16, "heads": 64, "mlp": 8192, "channels": 2048},
    **{"actions": 1024, "encoding": 8192, "hidden": 8192, "samples": MOST, "iterations": 1000},
    **{"history": 16, "chunk": 128},
}


@dataclass(frozen=True)
class ImageInput:
    """An observed RGB image, [rows, columns, 3] uint8."""

    name: str
    rows: int
    columns: int

    def __post_init__(self) -> None:
        check_key(self)
        check_name("an image", self.name)
        for side in ("rows", "columns"):
            check_count(f"{side} of image {self.name!r}", getattr(self, side), 1, LARGEST_IMAGE)


@dataclass(frozen=True)
class VectorInput:
    """An observed vector, [size]."""

    name: str
    size: int

    def __post_init__(self) -> None:
        check_key(self)
        check_name("a vector", self.name)
        check_count(f"size of vector {self.name!r}", self.size, 1, LARGEST_VECTOR)


@dataclass(frozen=True)
class VisionPerformerConfig(Looking):
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism, exact `softmax` included; or a control: `none` reads vectors alone,
        `all` all tokens, which read each other before the readout only in a `cnn`.
      images: the observed images, one or more; all their tokens attend to each other.
      vectors: the observed vectors.
      actions: numbers in an action.
      patch: side of a token, pixels; it divides all images.
      width: of tokens.
      depth: blocks of attention and MLP.
      heads: of attention; they divide `width`.
      mlp: width of the hidden layer in a block.
      channels: numbers of each token that are read out.
      qk_norm: `unit` gives queries and keys length one (HRF, Appendix K); `tempered` divides them by the
        fourth root of their width, for the usual kernel exp(q.k / sqrt(d)).
      encoding: width of the head's input.
      head: the way to choose actions, a name in `energy.HEADS`.
      hidden: width of the head's hidden layers.
      samples: candidates of a search; for `autoregressive`, steps along a line.
      iterations: rounds of `derivative_free` after its first candidates; for `langevin`, its steps
        (100 by default in commands and `vision_performer_config`).
      encoder: `transformer`, or in place of it, with the attention `all`: `relu`, one layer on each token, or
        `cnn`, whose blocks have a convolution of 3 x 3 tokens, separable, in place of attention.
      history: frames of each image that a step reads: its own and those of the steps before. As an episode
        begins, these were as its first frame.
      chunk: actions that are chosen at once, and executed in as many steps.
    """

    attention: str
    images: tuple[ImageInput, ...]
    vectors: tuple[VectorInput, ...]
    actions: int
    patch: int = 25
    width: int = 48
    depth: int = 2
    heads: int = 3
    mlp: int = 96
    channels: int = 8
    qk_norm: str = "unit"
    encoding: int = 64
    head: str = "squared_error"
    hidden: int = 64
    samples: int = 128
    iterations: int = 3
    encoder: str = ENCODERS[0]
    history: int = 1
    chunk: int = 1

    def __post_init__(self) -> None:
        check_key(self)
        for name, largest in LARGEST.items():
            check_count(name, getattr(self, name), 1, largest)
        check_count("the number of images", len(self.images), 1, MOST_INPUTS)
        check_count("the number of vectors", len(self.vectors), 0, MOST_INPUTS)
        check_distinct(
            "images and vectors", [*(i.name for i in self.images), *(v.name for v in self.vectors)]
        )
        for image in self.images:
            check_patch(self.patch, image.rows, image.columns, f"image {image.name!r}")
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}: it must divide the width {self.width}")
        for what, number, most in (
            ("tokens times width", self.tokens * self.width, 2**24),
            ("depth times heads", self.depth * self.heads, 192),
            ("history times tokens times width", self.history * self.tokens * self.width, 2**26),
            ("chunk times actions", self.chunk * self.actions, LARGEST["actions"]),
            (
                "chunk times actions times samples times iterations",
                self.chunk * self.actions * self.samples * self.iterations,
                2**27,
            ),
        ):
            check_count(what, number, 1, most)
        one_of("qk_norm", self.qk_norm, NORMS)
        one_of("head", self.head, HEADS)
        one_of("encoder", self.encoder, ENCODERS)
        if self.attends:
            attention(self.attention)
        if self.encoder in PLAIN_ENCODERS and self.attention != NO_ATTENTION:
            raise ValueError(
                f"encoder is {self.encoder!r}: it has no attention, so attention must be {NO_ATTENTION!r}, "
                f"not {self.attention!r}"
            )
        if not self.sees and not self.vectors:
            raise ValueError(f"attention is {self.attention!r}: without vectors the policy reads nothing")
        if not self.sees and self.history > 1:
            raise ValueError(
                f"history is {self.history}: it must be 1 with attention {NO_VISION!r}, which reads no image"
            )

    def controls(self) -> tuple[VisionPerformerConfig, ...]:
        """The same policy without attention, with each encoder, and without images if it has vectors."""
        plain = replace(self, attention=NO_ATTENTION, encoder=ENCODERS[0])
        controls = [replace(plain, encoder=encoder) for encoder in ENCODERS]
        if self.vectors:
            controls.append(replace(plain, attention=NO_VISION, history=1))
        return tuple(controls)

    def grid(self, image: ImageInput) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return image.rows // self.patch, image.columns // self.patch

    @property
    def counts(self) -> tuple[int, ...]:
        """Number of tokens of each image."""
        return tuple(prod(self.grid(image)) for image in self.images)

    @property
    def tokens(self) -> int:
        """Number of tokens of all images."""
        return sum(self.counts)

    @property
    def numbers(self) -> int:
        """Number of entries of all vectors."""
        return sum(vector.size for vector in self.vectors)

    @property
    def patches(self) -> list[int]:
        """Every `patch` that divides all images, pixels."""
        return divisors(side for image in self.images for side in (image.rows, image.columns))

    @property
    def head_config(self) -> HeadConfig:
        """The settings of the head."""
        dimensions = self.chunk * self.actions
        return HeadConfig(self.encoding, dimensions, self.hidden, self.samples, self.iterations)


def default_patch(*sides: int) -> int:
    """The largest patch (pixels) with twelve tokens a side or more: 25 for 500 pixels, 8 for 96.

    `sides` (pixels) are those of all images. Raises ValueError if that makes more than fifty tokens a side.
    """
    for side in sides:
        check_count("image", side, 1, LARGEST_IMAGE)
    fitting = divisors(sides)
    patch = max((size for size in fitting if min(sides) // size >= LEAST_TOKENS), default=1)
    if max(sides) // patch > MOST_TOKENS:
        pixels = " and ".join(map(str, dict.fromkeys(sides)))
        raise ValueError(f"patch has no default for {pixels} pixels a side: it must be one of {fitting}")
    return patch


def statistics_shapes(config: VisionPerformerConfig) -> dict[str, tuple[int, ...]]:
    """Shapes of the statistics of the data that `vision_performer` needs, by name."""
    vectors = {f"{v.name}_{part}": (v.size,) for v in config.vectors for part in ("shift", "scale")}
    return {**vectors, **dict.fromkeys(("action_low", "action_high"), (config.actions,))}
