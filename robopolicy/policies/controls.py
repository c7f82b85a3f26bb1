"""Controls, which show what a part of a policy contributes by leaving it out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

NO_VISION, NO_ATTENTION = "none", "all"
CONTROLS = (NO_VISION, NO_ATTENTION)  # what stands in place of a mechanism
PLAIN_ENCODERS = ("relu", "cnn")  # the encoders of policies without attention
MEMORY_ENCODERS = ("map", "gru")  # the same, with a memory
NAMED_ENCODERS = PLAIN_ENCODERS + MEMORY_ENCODERS


class Looking:
    """What a policy does with its images, from its mechanism or control."""

    attention: str
    encoder: str

    @property
    def sees(self) -> bool:
        """Whether it reads images."""
        return self.attention != NO_VISION

    @property
    def attends(self) -> bool:
        """Whether it has attention: controls have none."""
        return self.attention not in CONTROLS

    @property
    def label(self) -> str:
        """What it is called in tables and films."""
        return label(self.attention, self.encoder)


def attending(config: Any, attention: str) -> Any:
    """The settings `config` of a policy with the mechanism `attention`.

    If they are of a control, its encoder becomes the default one.
    """
    encoder = config.encoder if config.attends else type(config).encoder
    return replace(config, attention=attention, encoder=encoder)


def label(attention: str, encoder: str) -> str:
    """A policy's mechanism or control, with its encoder if that is not the default one."""
    return f"{attention}, {encoder}" if encoder in NAMED_ENCODERS else attention


def from_label(text: str) -> tuple[str, dict[str, str]]:
    """The attention of a policy with this label, and its encoder if that is not the default one."""
    for encoder in NAMED_ENCODERS:
        if text == label(NO_ATTENTION, encoder):
            return NO_ATTENTION, {"encoder": encoder}
    return text, {}
