"""Links of the pages that lead out of docs/: to what the site holds of the rest of the repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")  # of the repository's top, and of the site's
LINK = re.compile(r"(\]\()([^)\s#:]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Takes in the pages of the top, and every file that a page links to. Called by mkdocs."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for page in list(files.documentation_pages()):
        text = Path(str(page.abs_src_path)).read_text()
        for _, target in LINK.findall(text):
            path = _path(page.src_uri, target)
            if _outside(path) and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads links there. Called by mkdocs."""
    here = page.file.src_uri

    def led(link: re.Match[str]) -> str:
        path = _path(here, link[2])
        known = path if _outside(path) else path.removeprefix("docs/")
        return link[1] + posixpath.relpath(known, posixpath.dirname(here) or ".")

    return LINK.sub(led, markdown)


def _path(page: str, target: str) -> str:
    """Where a link of a page leads, from the repository's top."""
    folder = "" if page in PAGES else posixpath.join("docs", posixpath.dirname(page))
    return posixpath.normpath(posixpath.join(folder, target))


def _outside(path: str) -> bool:
    return not path.startswith("docs/") and (ROOT / path).is_file()
