"""What lies at the top of the repository beside the README."""

import re
import tomllib

import pytest
from documented import PAGES, ROOT, SCRIPTS, commands, named

import robopolicy

PERSON, ENTITY = {"family-names", "given-names"}, {"name"}


def test_the_citation_is_one():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["cff-version"]) == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert (citation["type"], citation["version"], citation["license"]) == (
        "software",
        robopolicy.__version__,
        "Apache-2.0",
    )
    titles = [reference["title"] for reference in citation["references"]]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert all(f"*{title}*" in readme for title in titles)
    for work in [citation, *citation["references"]]:
        assert all(author.keys() in (PERSON, ENTITY) for author in work["authors"])
    for reference in citation["references"]:
        assert {"type", "title", "year", "url"} <= reference.keys()
        assert isinstance(reference["year"], int)


def test_the_changelog_has_this_version_and_its_commands():
    text = (ROOT / "CHANGELOG.md").read_text()
    titles = re.findall(r"^## \[(.*)\]", text, re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert robopolicy.__version__ in titles
    assert [name for name in commands() if f"`{name}`" not in text] == []


def test_a_source_distribution_includes_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    taken = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {path.name for path in [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *ROOT.glob("*.yml")]} <= set(
        taken
    )


def test_no_page_installs_the_package_from_an_index():
    files = [*PAGES, *SCRIPTS, *(ROOT / "robopolicy").rglob("*.py")]
    wrong = re.compile(r"pip install [^`\n]*\brobopolicy(?!-\*\.whl)|install robopolicy\[")
    assert [named(path) for path in files if wrong.search(path.read_text())] == []
