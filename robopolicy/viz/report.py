"""A page about runs that stands alone: everything it shows is in it, and it asks nobody for anything."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATE = "report.html"
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".mp4": "video/mp4", ".jpg": "image/jpeg"}


class Picture(NamedTuple):
    """A picture in two widths, for a page and for a phone, and what it shows in words."""

    wide: Path
    narrow: Path
    shows: str


class Film(NamedTuple):
    """A video, the picture that stands for it until it plays, and the words below it."""

    video: Path
    poster: Path
    caption: str


class Card(NamedTuple):
    """A run at a glance: its name, what it is, its main figures as (value, what it is), its film."""

    name: str
    about: str
    figures: Sequence[tuple[str, str]]
    film: Film | None


class Row(NamedTuple):
    """A line of a table, one cell a column; `differs` where the columns are told apart by it."""

    name: str
    cells: Sequence[str]
    differs: bool = False


class Table(NamedTuple):
    """A table with a column a run; `numbers` stand to the right."""

    head: Sequence[str]
    rows: Sequence[Row]
    numbers: bool


class Section(NamedTuple):
    """A part of the page: what it says, its pictures and its tables. A `folded` one is opened by a click."""

    title: str
    words: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    folded: bool = False


def page(title: str, lead: str, cards: Sequence[Card], sections: Sequence[Section], foot: str) -> str:
    """The page as HTML; every word is escaped, and no script in it would run."""
    environment = Environment(
        loader=PackageLoader("robopolicy.viz", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["inlined"] = _inlined
    return environment.get_template(TEMPLATE).render(
        title=title, lead=lead, cards=cards, sections=sections, foot=foot
    )


def _inlined(path: Path) -> str:
    """A file as a URL that holds it."""
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
