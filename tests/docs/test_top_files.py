"""What lies at the top of the repository beside the README."""

import re
import tomllib

import pytest
from documented import PAGES, ROOT, SCRIPTS, commands, named

import robopolicy

PERSON, ENTITY = {"family-names", "given-names"}, {"name"}


def test_the_citation_is_one():
    yaml = pytest.importorskip("yaml")
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(told["cff-version"]) == "1.2.0"
    assert {"message", "title", "authors"} <= told.keys()
    assert (told["type"], told["version"], told["license"]) == (
        "software",
        robopolicy.__version__,
        "Apache-2.0",
    )
    titles = [reference["title"] for reference in told["references"]]
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert all(f"*{title}*" in readme for title in titles)
    for work in [told, *told["references"]]:
        assert all(author.keys() in (PERSON, ENTITY) for author in work["authors"])
    for reference in told["references"]:
        assert {"type", "title", "year", "url"} <= reference.keys()
        assert isinstance(reference["year"], int)


def test_the_changelog_knows_this_version_and_its_commands():
    text = (ROOT / "CHANGELOG.md").read_text()
    titles = re.findall(r"^## \[(.*)\]", text, re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert robopolicy.__version__ in titles
    assert [name for name in commands() if f"`{name}`" not in text] == []


def test_a_source_distribution_takes_them_along():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    taken = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {path.name for path in [*ROOT.glob("*.md"), *ROOT.glob("*.cff"), *ROOT.glob("*.yml")]} <= set(
        taken
    )


def test_nobody_is_told_to_install_the_package_from_an_index_that_lacks_it():
    told = [*PAGES, *SCRIPTS, *(ROOT / "robopolicy").rglob("*.py")]
    wrong = re.compile(r"pip install [^`\n]*\brobopolicy(?!-\*\.whl)|install robopolicy\[")
    assert [named(path) for path in told if wrong.search(path.read_text())] == []
