"""Checks of the words of a command line, before the parser gives some of them another meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from robopolicy.cli.declared import MANY, Option, by_name, negated, required_place


class Given(NamedTuple):
    """An option on the command line: as it is spelled, as it is declared, and the words behind it."""

    spelled: str
    option: Option
    values: list[str]


def check_words(name: str, words: Sequence[str], command: type[Any]) -> None:
    """Raise ValueError, in one line, for bad words behind the command `name`.

    It refuses an option that is given under two names, a list that is given twice or without values, an
    empty text, and a positional argument that only a value of a list could be. Of any other option that is
    given twice, the parser takes the last value, so that a command line can be changed at its end.
    """
    if {"-h", "--help"} & set(words):
        return
    given, free = _sorted(words, command)
    for one in given:
        _check_once(one.option, [other.spelled for other in given if other.option is one.option])
        if one.option.most == MANY and not one.values:
            raise ValueError(f"{one.option.flag} is empty: it needs one or more values")
        if one.option.is_text and "" in one.values:
            raise ValueError(f"{one.option.flag} is '': it must not be empty")
    lists = [one.option.flag for one in given if one.option.most == MANY]
    place = required_place(command)
    if place is not None and lists and not free:
        raise ValueError(
            f"{place} is missing: it goes before the options, because {lists[-1]} could take all words "
            f"behind it, as in: robopolicy {name} {place} {lists[-1]} ..."
        )


def _sorted(words: Sequence[str], command: type[Any]) -> tuple[list[Given], list[str]]:
    """The options that the command has, with their values; and the words that belong to none of them."""
    options = by_name(command)
    end = words.index("--") if "--" in words else len(words)
    given: list[Given] = []
    free = list(words[end + 1 :])
    left = 0  # values that the last option may still take
    for word in words[:end]:
        if word.startswith("--"):
            spelled, equals, value = word.partition("=")
            name = spelled[2:].replace("-", "_")
            option = options.get(name) or negated(options, name)
            values = [value] if equals else []
            left = option.most if option and not equals else 0  # the parser refuses unknown ones
            if option:
                given.append(Given(spelled.replace("_", "-"), option, values))
        elif left > 0:
            given[-1].values.append(word)
            left -= 1
        else:
            free.append(word)
    return given, free


def _check_once(option: Option, spellings: list[str]) -> None:
    if len(names := dict.fromkeys(spellings)) > 1:
        raise ValueError(f"{' and '.join(names)} are one option: give it once")
    if option.most == MANY and len(spellings) > 1:
        raise ValueError(f"{option.flag} is given {len(spellings)} times: it takes all values at once")
