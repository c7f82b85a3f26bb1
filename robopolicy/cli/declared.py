"""The options that a command declares, with their spellings and types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from tyro.conf import Positional, Suppress, UseAppendAction

_APPENDED, _POSITIONAL, _SUPPRESSED = (
    get_args(kind[tuple[str, ...]])[1] for kind in (UseAppendAction, Positional, Suppress)
)
MANY = 10**9  # values of an option that takes any number of them
TYPES: dict[Any, tuple[tuple[type, ...], str, str]] = {  # of TOML, and the words for one and for several
    bool: ((bool,), "true or false", ""),
    int: ((int,), "a whole number", "whole numbers"),
    float: ((int, float), "a number", "numbers"),
    str: ((str,), "text", "texts"),
    Path: ((str,), "text", "texts"),
}


class Option(NamedTuple):
    """An option, or a positional argument.

    Attributes:
      field: the field of the command, or of a dataclass in it.
      marks: the markers of its annotation.
      kind: the type of one value.
      most: how many values it takes at once: 0 for a flag, MANY for any number.
      optional: whether its value may be None.
    """

    field: Field[Any]
    marks: tuple[Any, ...]
    kind: Any
    most: int
    optional: bool

    @property
    def name(self) -> str:
        """The name of the field."""
        return self.field.name

    @property
    def flag(self) -> str:
        """The option as the command line has it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def names(self) -> set[str]:
        """All names of the option, with underscores."""
        aliases = (alias for mark in self.marks for alias in getattr(mark, "aliases", None) or ())
        return {self.name, *(alias.lstrip("-").replace("-", "_") for alias in aliases)}

    @property
    def repeatable(self) -> bool:
        """Whether the option may be given several times."""
        return _APPENDED in self.marks

    @property
    def is_text(self) -> bool:
        """Whether its values are texts, such as names and paths."""
        return self.kind in (str, Path)

    @property
    def required_place(self) -> str | None:
        """The placeholder of a positional argument that must be given, else None."""
        if _POSITIONAL not in self.marks or self.most != 1 or self.field.default is not MISSING:
            return None
        return next((m.metavar for m in self.marks if getattr(m, "metavar", None)), self.name.upper())

    @property
    def type_in_words(self) -> str:
        """What a value in a TOML file must be."""
        _, one, several = TYPES[self.kind]
        if self.repeatable or self.most == MANY:
            return f"a list of one or more {several}"
        return one if self.most < 2 else f"a list of {self.most} {several}"

    def accepts(self, value: Any) -> bool:
        """Whether a value of a TOML file has the type of the option; TOML has None as a text alone."""
        if self.optional and value == "None":
            return True
        if not isinstance(value, list):
            return self.most in (0, 1, MANY) and self._is_one(value)
        listed = value and (self.repeatable or self.most == MANY or len(value) == self.most > 1)
        return bool(listed) and all(map(self._is_one, value))

    def _is_one(self, value: Any) -> bool:
        kinds = TYPES[self.kind][0]
        return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def options(command: type[Any]) -> list[Option]:
    """The options of a command, also of nested dataclasses, without positional arguments."""
    return [option for option in _all(command) if _POSITIONAL not in option.marks]


def required_place(command: type[Any]) -> str | None:
    """The placeholder of the positional argument that the command needs, or None."""
    return next((place for option in _all(command) if (place := option.required_place)), None)


def by_name(command: type[Any]) -> dict[str, Option]:
    """The options of a command by each of their names, with underscores."""
    return {name: option for option in options(command) for name in option.names}


def negated(options: dict[str, Option], name: str) -> Option | None:
    """The flag that `name` switches off, or None."""
    option = options.get(name.removeprefix("no_"))
    return option if option and option.name != name and option.most == 0 else None


def _all(command: type[Any]) -> Iterator[Option]:
    hints = get_type_hints(command, include_extras=True)
    for field in fields(command):
        hint = hints[field.name]
        marks = getattr(hint, "__metadata__", ())
        if is_dataclass(hint):
            yield from _all(hint)  # type: ignore[arg-type]
        elif _SUPPRESSED not in marks:
            annotation = get_args(hint)[0] if marks else hint
            kind, most = _kind(annotation)
            optional = NoneType in get_args(annotation)
            yield Option(field, marks, kind, 1 if _APPENDED in marks else most, optional)


def _kind(annotation: Any) -> tuple[Any, int]:
    """The type of one value, and how many values there may be."""
    if get_origin(annotation) is tuple:
        one, *rest = get_args(annotation)
        return one, MANY if rest == [Ellipsis] else 1 + len(rest)
    one = next(iter(part for part in get_args(annotation) if part is not NoneType), annotation)
    return one, 0 if one is bool else 1
