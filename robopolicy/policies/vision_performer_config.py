"""Settings of the Vision-Performer: what it observes, its sizes, and the statistics that it is made with."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from robopolicy.attention import attention
from robopolicy.naming import one_of
from robopolicy.policies.energy import HEADS, MOST, HeadConfig
from robopolicy.policies.multihead import tempered, unit
from robopolicy.policies.names import check_distinct, check_name
from robopolicy.settings import check_count

NORMS = {"unit": unit, "tempered": tempered}
PRESETS: dict[str, dict[str, int]] = {
    "tiny": {"width": 32, "depth": 1, "heads": 2, "mlp": 64, "encoding": 32, "hidden": 32},
    "small": {"width": 48, "depth": 2, "heads": 3, "mlp": 96, "encoding": 64, "hidden": 64},
    "base": {"width": 192, "depth": 4, "heads": 12, "mlp": 384, "encoding": 192, "hidden": 128},
}
LEAST_TOKENS, MOST_TOKENS = 12, 50  # a side, with the patch that is chosen where none is given
MOST_INPUTS, LARGEST_IMAGE, LARGEST_VECTOR = 64, 4096, 1024
LARGEST = {
    **{"patch": LARGEST_IMAGE, "width": 2048, "depth": 16, "heads": 64, "mlp": 8192, "channels": 2048},
    **{"actions": 1024, "encoding": 8192, "hidden": 8192, "samples": MOST, "iterations": 1000},
}


@dataclass(frozen=True)
class ImageInput:
    """An RGB image that is observed, [rows, columns, 3] uint8."""

    name: str
    rows: int
    columns: int

    def __post_init__(self) -> None:
        check_name("an image", self.name)
        for side in ("rows", "columns"):
            check_count(f"{side} of image {self.name!r}", getattr(self, side), 1, LARGEST_IMAGE)


@dataclass(frozen=True)
class VectorInput:
    """A vector that is observed, [size]."""

    name: str
    size: int

    def __post_init__(self) -> None:
        check_name("a vector", self.name)
        check_count(f"size of vector {self.name!r}", self.size, 1, LARGEST_VECTOR)


@dataclass(frozen=True)
class VisionPerformerConfig:
    """Settings of the policy.

    Attributes:
      attention: spec of the mechanism, exact `softmax` included.
      images: the images that are observed, one or more; all their tokens attend to each other.
      vectors: the vectors that are observed.
      actions: numbers in an action.
      patch: pixels a side of a token; it divides all images.
      width: of tokens.
      depth: blocks of attention and MLP.
      heads: of attention; they divide `width`.
      mlp: width of the hidden layer in a block.
      channels: numbers of each token that are read out.
      qk_norm: `unit` gives queries and keys length one (HRF, Appendix K); `tempered` divides them by the
        fourth root of their width, for the usual kernel exp(q.k / sqrt(d)).
      encoding: width of what the head is given.
      head: how actions are chosen, a name in `energy.HEADS`.
      hidden: width of the head's hidden layers.
      samples: candidates at a time when an action is searched for; of `autoregressive`, steps along a line.
      iterations: rounds of `derivative_free` after the first look; of `langevin`, its steps.
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
    head: str = "autoregressive"
    hidden: int = 64
    samples: int = 128
    iterations: int = 3

    def __post_init__(self) -> None:
        for name, largest in LARGEST.items():
            check_count(name, getattr(self, name), 1, largest)
        check_count("the number of images", len(self.images), 1, MOST_INPUTS)
        check_count("the number of vectors", len(self.vectors), 0, MOST_INPUTS)
        check_distinct(
            "images and vectors", [*(i.name for i in self.images), *(v.name for v in self.vectors)]
        )
        for image in self.images:
            if image.rows % self.patch or image.columns % self.patch:
                raise ValueError(
                    f"patch is {self.patch}: it must divide the {image.rows} rows and {image.columns} "
                    f"columns of image {image.name!r}"
                )
        if self.width % self.heads:
            raise ValueError(f"heads is {self.heads}: it must divide the width {self.width}")
        for what, number, most in (
            ("tokens times width", self.tokens * self.width, 2**24),
            ("depth times heads", self.depth * self.heads, 192),
            ("actions times samples times iterations", self.actions * self.samples * self.iterations, 2**27),
        ):
            check_count(what, number, 1, most)
        one_of("qk_norm", self.qk_norm, NORMS)
        one_of("head", self.head, HEADS)
        attention(self.attention)

    def grid(self, image: ImageInput) -> tuple[int, int]:
        """Rows and columns of tokens."""
        return image.rows // self.patch, image.columns // self.patch

    @property
    def counts(self) -> tuple[int, ...]:
        """How many tokens each image is cut into."""
        return tuple(prod(self.grid(image)) for image in self.images)

    @property
    def tokens(self) -> int:
        """How many tokens all images are cut into."""
        return sum(self.counts)

    @property
    def numbers(self) -> int:
        """How many numbers all vectors have."""
        return sum(vector.size for vector in self.vectors)

    @property
    def patches(self) -> list[int]:
        """Every `patch` that it can have."""
        sides = [side for image in self.images for side in (image.rows, image.columns)]
        return [patch for patch in range(1, min(sides) + 1) if not any(side % patch for side in sides)]

    @property
    def head_config(self) -> HeadConfig:
        """What the head is made from."""
        return HeadConfig(self.encoding, self.actions, self.hidden, self.samples, self.iterations)


def default_patch(*sides: int) -> int:
    """The largest patch that gives twelve tokens a side or more: 25 for 500 pixels, 8 for 96.

    `sides` are those of all images. Raises ValueError where it would give more than fifty.
    """
    for side in sides:
        check_count("image", side, 1, LARGEST_IMAGE)
    sizes = [patch for patch in range(1, min(sides) + 1) if not any(side % patch for side in sides)]
    found = max((patch for patch in sizes if min(sides) // patch >= LEAST_TOKENS), default=1)
    if max(sides) // found > MOST_TOKENS:
        pixels = " and ".join(map(str, dict.fromkeys(sides)))
        raise ValueError(f"patch is not given: {pixels} pixels a side can be cut into {sizes}, so give one")
    return found


def statistics_shapes(config: VisionPerformerConfig) -> dict[str, tuple[int, ...]]:
    """What `vision_performer` is given of the data, by name."""
    vectors = {f"{v.name}_{part}": (v.size,) for v in config.vectors for part in ("shift", "scale")}
    return {**vectors, **dict.fromkeys(("action_low", "action_high"), (config.actions,))}
