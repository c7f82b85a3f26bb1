"""Checks of names, and messages in one line. Every room may import this module."""

import difflib
from collections.abc import Iterable

LONGEST_WORD, LONGEST_MESSAGE = 200, 1000  # characters


def one_of(argument: str, value: str, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed. Otherwise raise ValueError with `argument` and the closest name."""
    names = list(allowed)
    if value not in names:
        close = difflib.get_close_matches(str(value), names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{argument} is {value!r}: it must be one of {', '.join(names)}{hint}")
    return value


def one_line(message: str) -> str:
    """`message` in one printable line; the middle of long words and of a long message is left out."""
    # A terminal might obey control characters.
    words = "".join(c if c.isprintable() else " " for c in message).split()
    return _shorten(" ".join(_shorten(word, LONGEST_WORD) for word in words), LONGEST_MESSAGE)


def _shorten(text: str, longest: int) -> str:
    part = longest // 2
    return text if len(text) <= longest else f"{text[:part]}...{text[-part:]}"
