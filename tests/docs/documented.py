"""Links, Python blocks and command lines of the documentation."""

import ast
import inspect
import re
import shlex
import sys
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "hooks"))

from commands import commands, examples  # noqa: E402 (of the documentation's build)

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SCRIPTS = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")])
PROGRAMS = ("robopolicy", "python", "make")

# Placeholders and their values in tests; "..." is left out.
PLACEHOLDERS = {
    "ADDRESS": "127.0.0.1",
    "BUNDLE": "bundle",
    "COMMAND": "flops",
    "DATASET": "datasets/sweep-v0",
    "ENGINE": "mujoco",
    "GRID": "runs/table",
    "INTERFACE": "lo",
    "NAME": "oracle",
    "PORT": "8000",
    "RUN": "runs/mine",
    "SEED": "1",
    "SPEC": "softmax",
    "module:Name-v0": "planar_arm:PlanarArm-v0",
}
# In front of a command: a prompt, variables, a scheduler.
BEFORE = re.compile(r"(?:\$ )?(?:[A-Z_]+=\S+ +)*(?:srun (?:--?\S+ +)*)?(?:\.venv/bin/)?")


class Line(NamedTuple):
    """A command line, and whether it is whole: running text leaves arguments out."""

    where: str
    words: tuple[str, ...]
    whole: bool


@cache
def command_lines() -> list[Line]:
    """All of the pages, of the commands' examples and of the scripts' docstrings, each once."""
    found = [line for page in PAGES for line in _of_markdown(named(page), page.read_text())]
    for name, command in commands().items():
        for text in examples(command):
            found += _of_text(f"robopolicy {name} --help", text, whole=True)
    for script in SCRIPTS:
        about = ast.get_docstring(ast.parse(script.read_text()))
        found += _of_markdown(named(script), about or "")
    return list({(line.words, line.whole): line for line in reversed(found)}.values())[::-1]


def of_program(*start: str) -> list[Line]:
    """The command lines that start with `start`, without it."""
    return [
        line._replace(words=line.words[len(start) :])
        for line in command_lines()
        if line.words[: len(start)] == start
    ]


def runs() -> dict[str, bool]:
    """The runs that command lines name, and whether they are clones of the demonstrator."""
    named: dict[str, bool] = {}
    for line in of_program("robopolicy"):
        cloned = line.words[:2] == ("train", "bc") or any(w.startswith("bimanual-sweep") for w in line.words)
        for word in line.words:
            name = word.partition("@")[0].removeprefix("runs/")
            if ships(word) or word.startswith("runs/"):
                named[name] = named.get(name, False) or cloned
    return named


def ships(word: str) -> bool:
    """Whether a word is the name of a policy of the package."""
    return word.startswith(("stepping-stones-", "bimanual-sweep-"))


def python_blocks(page: Path) -> list[str]:
    """The Python of a page."""
    return [token.content for token in _tokens(page) if token.type == "fence" and token.info == "python"]


def links(page: Path) -> list[str]:
    """Targets of the links and images of a page."""
    return [
        str(token.attrGet("href") or token.attrGet("src"))
        for token in _flat(_tokens(page))
        if token.type in ("link_open", "image")
    ]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as both the site and code hosts spell them."""
    tokens = _tokens(page)
    titles = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    if page.name == "commands.md":
        titles += [f"robopolicy {name}" for name in commands()]
    return {spelt for title in titles for spelt in [_anchor(title)] if spelt}


def named(path: Path) -> str:
    """A file's name in the repository."""
    return path.relative_to(ROOT).as_posix()


def _anchor(title: str) -> str:
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt().enable("table").parse(page.read_text())


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])


def _of_markdown(where: str, text: str) -> list[Line]:
    found: list[Line] = []
    for token in _flat(MarkdownIt().enable("table").parse(inspect.cleandoc(text))):
        if token.type == "code_block" or (token.type == "fence" and token.info != "python"):
            found += _of_text(where, token.content, whole=True)
        elif token.type == "code_inline":
            found += _of_text(where, " ".join(token.content.split()), whole=False)
    return found


def _of_text(where: str, text: str, *, whole: bool) -> list[Line]:
    """The command lines of a block, or of a piece of code in running text."""
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        said = re.sub(r"(?:^| +)# .*", "", line.strip())
        for part in re.split(r" (?:&&|\|\|?|;|>|2>|&)(?: |$)", said):
            part = part[BEFORE.match(part).end() :]  # type: ignore[union-attr] (it matches nothing, too)
            if part.split(" ")[0].removesuffix("3") in PROGRAMS:
                found.append(Line(where, tuple(_words(part)), whole))
    return found


def _words(part: str) -> Iterator[str]:
    for word in shlex.split(part):
        if word in ("...", "…"):
            continue
        name, at, which = word.partition("@")
        name = re.sub(r"\$\{?\w+\}?", "1", name)
        yield PLACEHOLDERS.get(name, "python" if name == "python3" else name) + at + which


def extras() -> set[str]:
    """The extras of the package that pages install."""
    named = [n for page in PAGES for n in re.findall(r"(?:robopolicy|\.)\[([\w,-]+)\]", page.read_text())]
    return {extra for part in named for extra in part.split(",")}
