"""What version 0.1 wrote down of policies, as this version has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.quadruped import quadruped
from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig
from robopolicy.settings import from_json

IMAGE, POSES = "image", "poses"  # what each Vision-Performer observed
RENAMED = (
    (re.compile(r"(^|/)statistics/pose_(shift|scale)$"), rf"\1statistics/{POSES}_\2"),
    (re.compile(r"(^|/)patches/(kernel|bias)(/value)?$"), rf"\1patches/{IMAGE}/\2\3"),
)


@dataclass(frozen=True)
class OlderIAP:
    """An Implicit Attention Policy, which was that of a quadruped."""

    attention: str
    proprioception: tuple[str, ...]
    image: tuple[int, int]
    variant: str
    patch: int
    head_dim: int
    keep: float
    fade: float
    columns: tuple[int, int]
    depth_scale: float
    leg_inputs: tuple[str, ...]
    hidden: int
    head: str
    spread: float
    calm: float
    normalise: bool

    def current(self) -> IAPConfig:
        """As this version has it; raises what `quadruped` raises."""
        return quadruped(**vars(self))


@dataclass(frozen=True)
class OlderVisionPerformer:
    """A Vision-Performer, which had one square image and one vector."""

    attention: str
    image: int
    patch: int
    width: int
    depth: int
    heads: int
    mlp: int
    channels: int
    qk_norm: str
    poses: int
    actions: int
    encoding: int
    head: str
    hidden: int
    samples: int
    iterations: int

    def current(self) -> VisionPerformerConfig:
        """As this version has it; raises what `VisionPerformerConfig` raises."""
        others = {name: value for name, value in vars(self).items() if name not in (IMAGE, POSES)}
        images = (ImageInput(IMAGE, self.image, self.image),)
        return VisionPerformerConfig(images=images, vectors=(VectorInput(POSES, self.poses),), **others)


OLDER = {
    "iap": (OlderIAP, IAPConfig),
    "vision-performer": (OlderVisionPerformer, VisionPerformerConfig),
}


def is_older(kind: str, settings: Mapping[str, Any]) -> bool:
    """Whether `settings` of a policy have a name that only version 0.1 knew."""
    older, current = ({field.name for field in fields(declared)} for declared in OLDER[kind])
    return bool(settings.keys() & (older - current))


def from_older(kind: str, settings: Mapping[str, Any]) -> IAPConfig | VisionPerformerConfig:
    """The config of `settings` that are older. Raises ValueError for wrong ones, in one line."""
    older: OlderIAP | OlderVisionPerformer = from_json(f"policy, of kind {kind},", OLDER[kind][0], settings)
    return older.current()


def current_path(path: str) -> str:
    """The path among a policy's arrays that version 0.1 called `path`; of this version's it changes none."""
    for pattern, name in RENAMED:
        path = pattern.sub(name, path)
    return path
