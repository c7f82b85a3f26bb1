"""What a training calls, for whoever shows its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from robopolicy.training.metrics import Record


class Hooks(NamedTuple):
    """What is called while a run trains.

    Attributes:
      on_begin: with what is about to happen, in words, when the input is checked.
      on_resume: with the generation that a resumed run begins with.
      on_record: with every record, once it is logged and saved.
      on_step: after each episode, or after each step of cloning.
    """

    on_begin: Callable[[str], None] = lambda words: None
    on_resume: Callable[[int], None] = lambda number: None
    on_record: Callable[[Record], None] = lambda record: None
    on_step: Callable[[], None] = lambda: None
