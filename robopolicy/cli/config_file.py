"""Options from a TOML file: `--config FILE`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from robopolicy.cli.declared import Option, by_name
from robopolicy.naming import one_of, shown

OPTION = "--config"
TABLES = ("policy", "search", "training", "evaluator", "environment")  # headings that group options


def expanded(words: Sequence[str], command: type[Any]) -> list[str]:
    """The words of a command line with `--config FILE` replaced by the options in the file.

    Options on the command line win over those of the file. Raises ValueError, in one line, for a file that
    is not TOML, for an option that the command does not have or that the file has twice, and for a value of
    another type than the option's; OSError for a file that cannot be read.
    """
    rest = list(words)
    places = [at for at, word in enumerate(rest) if word.split("=")[0] == OPTION]
    if not places:
        return rest
    if len(places) > 1:
        raise ValueError(f"{OPTION} is given {len(places)} times: it may be given once")
    _, equals, file = rest.pop(places[0]).partition("=")
    if not equals and rest[places[0] :] and not rest[places[0]].startswith("--"):
        file = rest.pop(places[0])
    if not file:
        raise ValueError(f"{OPTION} needs the path of a TOML file")
    where, options = f"{file!r}:", by_name(command)
    given = {word[2:].split("=")[0].replace("-", "_") for word in rest if word.startswith("--")}
    added: list[str] = []
    found: dict[str, str] = {}
    for place, name, value in _settings(Path(file)):
        option = options[one_of(f"{where} an option", name, options)]
        if option.name in found:
            raise ValueError(f"{where} {found[option.name]} and {place} are one setting: give it once")
        found[option.name] = place
        words_of_file = _words(where, option, value)
        if not given & {f"no_{option.name}", *option.names}:
            added += words_of_file
    return [*added, *rest] if rest and rest[0].startswith("--") else [*rest, *added]


def _settings(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Place in the file, name and value of each setting."""
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except ValueError as error:  # no UTF-8, or no TOML
        raise ValueError(f"{str(path)!r} is not TOML: {error}") from error
    for name, value in content.items():
        if not isinstance(value, dict):
            yield name, name.replace("-", "_"), value
            continue
        one_of(f"{str(path)!r}: a table", name, TABLES)
        for key, one in value.items():
            yield f"[{name}] {key}", key.replace("-", "_"), one


def _words(where: str, option: Option, value: Any) -> list[str]:
    if not option.accepts(value):
        raise ValueError(f"{where} {option.name} is {shown(value)}: it must be {option.type_in_words}")
    if isinstance(value, bool):
        return [option.flag if value else f"--no-{option.flag[2:]}"]
    texts = [str(one) for one in (value if isinstance(value, list) else [value])]
    if option.is_text and any(not text or text.startswith("-") for text in texts):
        raise ValueError(f"{where} {option.name} is {shown(value)}: text must not be empty or begin with -")
    if option.repeatable:
        return [word for text in texts for word in (option.flag, text)]
    return [option.flag, *texts]
