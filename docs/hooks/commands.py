"""What docs/reference/commands.md says of every command, from its dataclass: docstring, examples, options."""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple

import tyro

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import robopolicy  # noqa: E402 (this tree's, where it has one, and not one that is installed beside)
from robopolicy.cli import commands  # noqa: E402

MARK = "<!-- commands -->"
PAGE = "reference/commands.md"
EXAMPLES, INDENT = "For example:", "    "
POSITIONAL, APPENDED = (
    typing.get_args(kind[tuple[str, ...]])[1] for kind in (tyro.conf.Positional, tyro.conf.UseAppendAction)
)


class Option(NamedTuple):
    """An option or a positional argument, as the parser spells it."""

    name: str
    value: str
    default: str
    meaning: str


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fills the mark in. Called by mkdocs."""
    return (
        markdown.replace(MARK, "\n\n".join(map(_section, commands())))
        if page.file.src_uri == PAGE
        else markdown
    )


def examples(command: type) -> list[str]:
    """The command lines that a docstring shows."""
    return [line.strip() for line in _told(command) if line.startswith(INDENT)]


def options(command: type) -> Iterator[Option]:
    """The options of a command, in order."""
    hints = typing.get_type_hints(command, include_extras=True)
    meanings = _meanings(command)
    for field in fields(command):
        hint = hints[field.name]
        if is_dataclass(hint):  # its fields are options
            yield from options(hint)  # type: ignore[arg-type]
            continue
        markers = getattr(hint, "__metadata__", ())
        bare = getattr(hint, "__origin__", hint) if markers else hint
        name = field.name.replace("_", "-")
        name = f"--no-{name}" if field.default is True else f"--{name}"
        value = next((m.metavar for m in markers if getattr(m, "metavar", None)), None) or _value(bare)
        if POSITIONAL in markers:
            name, value = value, ""
        if APPENDED in markers:  # once for each
            value = value.removesuffix(" ...")
        words = next((m.help for m in markers if getattr(m, "help", None)), None)
        words = words or meanings[field.name]
        words = words[0].upper() + words[1:]
        needed = field.default is MISSING and field.default_factory is MISSING
        words = f"Required. {words}" if needed else words
        yield Option(name, value, _default(field), " ".join(words.split()))


def _meanings(command: type) -> dict[str, str]:
    """What each field means, by the text below it or by the "Attributes" in the docstring of its class."""
    meanings: dict[str, str] = {}
    for kind in reversed(command.__mro__):
        if not is_dataclass(kind):
            continue
        found = _package()[f"{kind.__module__}.{kind.__name__}".removeprefix("robopolicy.")]
        for section in found.docstring.parse("google"):
            if section.kind.value == "attributes":
                meanings |= {item.name: item.description for item in section.value}
        meanings |= {
            name: member.docstring.value for name, member in found.members.items() if member.docstring
        }
    return meanings


@cache
def _package() -> Any:
    # Imported here: who asks for names and examples alone may do without.
    import griffe

    return griffe.load("robopolicy", search_paths=[Path(robopolicy.__file__).parents[1]])


def _section(name: str) -> str:
    command = commands()[name]
    words = [line for line in _told(command) if line != EXAMPLES and not line.startswith(INDENT)]
    shown = "\n".join(["```", *examples(command), "```"])
    rows = ["| option | value | default | |", "|---|---|---|---|"]
    for option in options(command):
        cells = [f"`{part}`" if part else "" for part in option[:3]]
        rows.append(f"| {' | '.join([*cells, _linked(option.meaning)])} |")
    about = re.sub(r"\n{3,}", "\n\n", "\n".join(words)).strip()
    return "\n\n".join([f"## robopolicy {name}", _linked(about), shown, "\n".join(rows)])


def _told(command: type) -> list[str]:
    return inspect.cleandoc(command.__doc__ or "").splitlines()


def _linked(words: str) -> str:
    return re.sub(r"\bdocs/([\w/-]+)\.md", r"[\1](../\1.md)", words)


def _value(kind: Any) -> str:
    """What is given behind an option."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, UnionType):
        return "|".join(_value(argument) for argument in arguments)
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(map(str, arguments))
    if typing.get_origin(kind) is tuple:
        return " ".join("..." if argument is Ellipsis else _value(argument) for argument in arguments)
    return {bool: "", NoneType: "None"}.get(kind, kind.__name__.upper())


def _default(field: Field[Any]) -> str:
    """What holds where nothing is given; what depends on the machine is told by the option's own words."""
    if field.default is MISSING or field.default is None or isinstance(field.default, bool):
        return ""
    value = field.default if isinstance(field.default, tuple) else (field.default,)
    return " ".join(map(str, value))
