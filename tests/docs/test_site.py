"""The documentation as a site."""

import json
import re
import subprocess
import sys
from importlib import import_module

import pytest
from documented import PAGES, ROOT, commands, named

import robopolicy

pytest.importorskip("mkdocs")


@pytest.fixture(scope="module")
def site(once):
    def build(folder):
        words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return once("site", build)


@pytest.mark.slow
def test_every_page_is_in_it_and_nothing_is_fetched_from_elsewhere(site):
    names = {named(page).removeprefix("docs/").removesuffix(".md") for page in PAGES} - {"README"}
    assert names <= {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    for page in site.rglob("*.html"):
        loads = re.findall(
            r"<(?:script|link|img|iframe)[^>]*?(?:src|href)=\"?(?:https?:)?//", page.read_text()
        )
        assert not loads, page


@pytest.mark.slow
def test_the_reference_has_all_commands_and_public_names(site):
    index = json.loads((site / "search" / "search_index.json").read_text())
    found = {entry["location"] for entry in index["docs"]}
    for name in commands():
        assert f"reference/commands.html#robopolicy-{name.replace(' ', '-')}" in found
    for module in ("robopolicy.attention", "robopolicy.runtime"):
        for name in import_module(module).__all__:
            assert f"reference/python.html#{module}.{name}" in found
    for name in robopolicy.__all__:
        module = getattr(robopolicy, name).__module__
        assert f"reference/python.html#{module}.{name}" in found
