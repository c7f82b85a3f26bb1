"""Links and images of the documentation lead somewhere."""

from pathlib import Path
from urllib.parse import urlparse

import pytest
from documented import PAGES, anchors, links, named

HOSTS = {
    *("arxiv.org", "keepachangelog.com", "openreview.net", "rerun.io", "semver.org", "www.ray.io"),
    "stable-baselines3.readthedocs.io",
}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    dead = []
    for link in links(page):
        parsed = urlparse(link)
        if parsed.netloc:
            if parsed.netloc not in HOSTS or parsed.scheme != "https":
                dead.append(link)
            continue
        target = (page.parent / parsed.path).resolve() if parsed.path else page
        if not target.exists() or (parsed.fragment and not _has(target, parsed.fragment)):
            dead.append(link)
    assert not dead


def _has(target: Path, anchor: str) -> bool:
    return target.suffix == ".md" and anchor in anchors(target)
