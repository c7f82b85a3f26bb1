"""Functions that a training calls, to show its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from robopolicy.training.metrics import Record


class Hooks(NamedTuple):
    """Functions that a training calls.

    Attributes:
      on_begin: called with lines of text, one by one, once the input is checked.
      on_resume: called with the first generation or step of a resumed run.
      on_record: called with every record, once it is logged and saved.
      on_step: called after each training episode, or after each step of cloning.
    """

    on_begin: Callable[[str], None] = lambda text: None
    on_resume: Callable[[int], None] = lambda number: None
    on_record: Callable[[Record], None] = lambda record: None
    on_step: Callable[[], None] = lambda: None
