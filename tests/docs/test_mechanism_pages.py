"""Every mechanism and every coupling that can be named has its place in the documentation."""

import inspect
import re
from pathlib import Path

import pytest

from robopolicy.attention import canonical
from robopolicy.attention.catalogue import COUPLINGS, MECHANISMS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {page.stem: page.read_text() for page in sorted((DOCS / "mechanisms").glob("*.md"))}
SECTIONS = {
    title: (stem, text)
    for stem, page in PAGES.items()
    for title, text in re.findall(r"^## (.*)\n((?:(?!^#{1,2} ).*\n)*)", page, re.MULTILINE)
}
NAMES = [*MECHANISMS, "softmax"]


def named(title: str) -> list[str]:
    """The mechanisms that a heading is about, written as calls or by their name alone."""
    return [n for call in re.findall(r"`([^`]*)`", title) for n in [call.split("(")[0]] if n in NAMES]


def page_of(name: str) -> tuple[str, str]:
    """The page that has a section on a mechanism, and the section."""
    (found,) = [SECTIONS[title] for title in SECTIONS if name in named(title)]
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_has_one_section_and_a_line_in_the_overview(name):
    stem, _ = page_of(name)
    overview = (DOCS / "attention.md").read_text()
    (line,) = [row for row in overview.splitlines() if re.match(rf"\| \[[^\]]*`{name}[(`]", row)]
    assert f"(mechanisms/{stem}.md" in line


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_section_has_variance_reference_and_use(name):
    stem, section = page_of(name)
    assert "**Variance**" in section
    assert "**Reference**" in section
    for title in ("Unbiased for", "Use", "Cost"):
        assert f"**{title}" in PAGES[stem]


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_argument_of_a_spec_is_documented(name):
    stem, _ = page_of(name)
    mechanism = MECHANISMS[name]
    for argument in (*mechanism.counts, *mechanism.numbers, *mechanism.choices):
        assert re.search(rf"^\| .*`{argument}`.* \|", PAGES[stem], re.MULTILINE), argument
        assert argument in inspect.signature(mechanism.factory).parameters


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_every_coupling_has_a_row(coupling):
    assert re.search(rf"^\| `{coupling}`", PAGES["couplings"], re.MULTILINE)


def test_specs_that_pages_name_are_specs():
    texts = [(DOCS / "attention.md").read_text(), (DOCS / "concepts.md").read_text(), *PAGES.values()]
    specs = {spec for text in texts for spec in re.findall(r"[`\"](\w+\((?:\w+=[^()]*)\))[`\"]", text)}
    mechanisms = {spec for spec in specs if spec.split("(")[0] in NAMES}
    assert len(mechanisms) > 5
    for spec in mechanisms:
        canonical(spec)
