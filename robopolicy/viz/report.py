"""A self-contained HTML page about runs: it embeds all pictures and videos and loads nothing."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

TEMPLATE = "report.html"
KINDS = {".svg": "image/svg+xml", ".png": "image/png", ".mp4": "video/mp4", ".jpg": "image/jpeg"}


class Picture(NamedTuple):
    """A picture in two widths, for a wide page and a phone, and `shows`, its alternative text."""

    wide: Path
    narrow: Path
    shows: str


class Film(NamedTuple):
    """A video, the picture before it plays, and its caption."""

    video: Path
    poster: Path
    caption: str


class Card(NamedTuple):
    """The summary of a run: name, description, main figures as (value, label), and film."""

    name: str
    about: str
    figures: Sequence[tuple[str, str]]
    film: Film | None


class Row(NamedTuple):
    """A row of a table with one cell per column; `differs` highlights it."""

    name: str
    cells: Sequence[str]
    differs: bool = False


class Table(NamedTuple):
    """A table with a column per run; cells of `numbers` are aligned to the right."""

    head: Sequence[str]
    rows: Sequence[Row]
    numbers: bool


class Section(NamedTuple):
    """A part of the page: text, pictures and tables. A click opens a `folded` section."""

    title: str
    words: str = ""
    pictures: Sequence[Picture] = ()
    tables: Sequence[Table] = ()
    folded: bool = False


def page(title: str, lead: str, cards: Sequence[Card], sections: Sequence[Section], foot: str) -> str:
    """The page as HTML. All text is escaped, and the page allows no scripts."""
    environment = Environment(
        loader=PackageLoader("robopolicy.viz", ""), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["inlined"] = _inlined
    return environment.get_template(TEMPLATE).render(
        title=title, lead=lead, cards=cards, sections=sections, foot=foot
    )


def _inlined(path: Path) -> str:
    """The content of a file as a data URL."""
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
