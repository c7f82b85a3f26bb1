"""Checks of names, and messages in one line. Every room may import this module."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST_WORD, LONGEST_MESSAGE = 200, 1000  # characters
_EXTRAS = {"pyarrow": "lerobot"}  # of packages that only some commands need
GRAPH_NAMES = ("action", "command", "normaliser", "parameters", "scores")
"""Other inputs and the outputs of ONNX graphs, so no observation of a new run or a bundle has these names."""
NAME = re.compile(r"[^_{}\x00-\x1f\x7f][^{}\x00-\x1f\x7f]{0,99}")


def one_of(argument: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value` if it is allowed. Otherwise raise ValueError with `argument` and the closest name."""
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        if not names:
            raise ValueError(f"{argument} is {shown(value)}: there is nothing to choose from")
        hint = closest(str(value), names)
        raise ValueError(f"{argument} is {shown(value)}: it must be one of {', '.join(names)}{hint}")
    return value


def closest(name: str, names: Iterable[str]) -> str:
    """The end of a message: the closest of `names`, if one is close."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def check_name(what: str, name: Any) -> None:
    """Raise ValueError unless `name` can be part of the path of a parameter and of a file's content."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        allowed = "1 to 100 characters, no braces or control characters, and no _ in front"
        raise ValueError(f"the name of {what} is {shown(name)}: it must be {allowed}")


def check_graph_names(observations: Iterable[str]) -> None:
    """Raise ValueError naming the first of `observations` with a name that graphs have for something else."""
    for name in observations:
        if name in GRAPH_NAMES:
            others = ", ".join(GRAPH_NAMES)
            raise ValueError(
                f"an observation is called {name!r}: graphs have {others}, so give it another name"
            )


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Raise ValueError naming the first of `names` that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{what} have the name {name!r} twice: each name must occur once")
        seen.add(name)


def check_settings(settings: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Raise ValueError naming the first of `settings` that is not allowed, and the closest name that is."""
    for name in settings:
        one_of("setting", name, allowed)


def shown(value: Any) -> str:
    """The value as Python writes it, in one line."""
    return one_line(repr(value))


def counted(count: int, things: str) -> str:
    """A number of things, whose name is given in the plural: 1 episode, 2 episodes."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def one_line(message: str) -> str:
    """`message` in one printable line; the middle of long words and of a long message is left out."""
    # A terminal might obey control characters.
    words = "".join(c if c.isprintable() else " " for c in message).split()
    return _shorten(" ".join(_shorten(word, LONGEST_WORD) for word in words), LONGEST_MESSAGE)


def _shorten(text: str, longest: int) -> str:
    part = longest // 2
    return text if len(text) <= longest else f"{text[:part]}...{text[-part:]}"


def extra_with(error: ModuleNotFoundError) -> str:
    """What installs the package that `error` misses, if an extra has it, or else nothing."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    return f"install the extra {extra}: pip install '.[all,{extra}]'" if extra else ""
