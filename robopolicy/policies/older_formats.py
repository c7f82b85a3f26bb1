"""Policies that version 0.1 wrote, in the settings of this version."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, fields
from typing import Any

from robopolicy.policies.iap_config import IAPConfig
from robopolicy.policies.quadruped import quadruped
from robopolicy.policies.vision_performer_config import ImageInput, VectorInput, VisionPerformerConfig
from robopolicy.settings import from_json

IMAGE, POSES = "image", "poses"  # the observations of a Vision-Performer
RENAMED = (
    (re.compile(r"(^|/)statistics/pose_(shift|scale)$"), rf"\1statistics/{POSES}_\2"),
    (re.compile(r"(^|/)patches/(kernel|bias)(/value)?$"), rf"\1patches/{IMAGE}/\2\3"),
)


@dataclass(frozen=True)
class OlderIAP:
    """An Implicit Attention Policy of a quadruped."""

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
        """The same policy in this version. Raises as `quadruped`."""
        return quadruped(**vars(self))


@dataclass(frozen=True)
class OlderVisionPerformer:
    """A Vision-Performer with one square image and one vector."""

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
        """The same policy in this version. Raises as `VisionPerformerConfig`."""
        others = {name: value for name, value in vars(self).items() if name not in (IMAGE, POSES)}
        images = (ImageInput(IMAGE, self.image, self.image),)
        return VisionPerformerConfig(images=images, vectors=(VectorInput(POSES, self.poses),), **others)


OLDER = {
    "iap": (OlderIAP, IAPConfig),
    "vision-performer": (OlderVisionPerformer, VisionPerformerConfig),
}


def from_older(kind: str, settings: Mapping[str, Any]) -> IAPConfig | VisionPerformerConfig | None:
    """The config of settings of version 0.1; None for settings of this version.

    Raises ValueError in one line for wrong settings of version 0.1.
    """
    declared, current = OLDER[kind]
    names = {field.name for field in fields(declared)} - {field.name for field in fields(current)}
    if not settings.keys() & names:
        return None
    older: OlderIAP | OlderVisionPerformer = from_json(f"policy, of kind {kind},", declared, settings)
    return older.current()


def current_path(path: str, expected: Container[str]) -> str:
    """The path in this version of an array that version 0.1 wrote to `path`; the `expected` ones stay."""
    if path in expected:
        return path
    for pattern, name in RENAMED:
        path = pattern.sub(name, path)
    return path
