"""Options from a TOML file: `--config FILE`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from tyro.conf import Positional, Suppress, UseAppendAction

from robopolicy.naming import one_of

OPTION = "--config"
TABLES = ("policy", "search", "training", "evaluator", "environment")  # headings that group options
_APPENDED, *_NO_OPTIONS = (
    get_args(kind[tuple[str, ...]])[1] for kind in (UseAppendAction, Positional, Suppress)
)


def expanded(words: Sequence[str], command: type[Any]) -> list[str]:
    """The words of a command line with `--config FILE` replaced by the options in the file.

    Options on the command line win over those of the file. Raises ValueError, in one line, for a file that
    cannot be read, for an option that the command does not have, and for a value that is none.
    """
    rest = list(words)
    places = [at for at, word in enumerate(rest) if word.split("=")[0] == OPTION]
    if not places:
        return rest
    if len(places) > 1:
        raise ValueError(f"{OPTION} is given {len(places)} times: it may be given once")
    word = rest.pop(places[0])
    if "=" not in word and places[0] == len(rest):
        raise ValueError(f"{OPTION} needs the path of a TOML file")
    path = Path(word.partition("=")[2] or rest.pop(places[0]))
    options: dict[str, tuple[Field[Any], tuple[Any, ...], set[str]]] = {}
    for name, field, marks, _ in _options(command):
        names = {name, *(alias.lstrip("-") for m in marks for alias in getattr(m, "aliases", None) or ())}
        options |= dict.fromkeys(names, (field, marks, names))
    spelled = {word.split("=")[0].removeprefix("--").replace("-", "_") for word in rest}
    added = []
    for name, value in _settings(path):
        one_of(f"{str(path)!r}: an option", name, options)
        field, marks, names = options[name]
        if not spelled & {f"no_{name}", *names}:
            added += _words(path, field, marks, value)
    return [*added, *rest] if rest and rest[0].startswith("--") else [*rest, *added]


def list_options(command: type[Any]) -> list[str]:
    """The options of a command that take any number of values at once, as on the command line."""
    return [
        f"--{name.replace('_', '-')}"
        for name, _, marks, kind in _options(command)
        if get_origin(kind) is tuple and Ellipsis in get_args(kind) and _APPENDED not in marks
    ]


def _options(command: type[Any]) -> Iterator[tuple[str, Field[Any], tuple[Any, ...], Any]]:
    """Name, field, markers and type of each option, also of nested dataclasses."""
    hints = get_type_hints(command, include_extras=True)
    for field in fields(command):
        hint = hints[field.name]
        if is_dataclass(hint):
            yield from _options(hint)  # type: ignore[arg-type]
        elif not set(_NO_OPTIONS).intersection(marks := getattr(hint, "__metadata__", ())):
            yield field.name, field, marks, get_args(hint)[0] if marks else hint


def _settings(path: Path) -> Iterator[tuple[str, Any]]:
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except ValueError as error:  # no UTF-8, or no TOML
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from error
    for name, value in content.items():
        if not isinstance(value, dict):
            yield name.replace("-", "_"), value
            continue
        one_of(f"{str(path)!r}: a table", name, TABLES)
        yield from ((key.replace("-", "_"), one) for key, one in value.items())


def _words(path: Path, field: Field[Any], marks: tuple[Any, ...], value: Any) -> list[str]:
    option = f"--{field.name.replace('_', '-')}"
    values = value if isinstance(value, list) else [value]
    if isinstance(value, bool):
        default = False if field.default is MISSING else field.default
        return [] if value is default else [option if value else f"--no-{option[2:]}"]
    if not values or not all(isinstance(one, str | int | float) for one in values):
        raise ValueError(
            f"{str(path)!r}: {field.name} is {value!r}: it must be text, a number, true, false, or a list"
        )
    texts = [str(one) for one in values]
    return [word for text in texts for word in (option, text)] if _APPENDED in marks else [option, *texts]
