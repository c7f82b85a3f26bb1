"""Every benchmark, and every picture that one draws, has its place on the page of results."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The others are modules that benchmarks import.
BENCHMARKS = [p for p in sorted((ROOT / "benchmarks").rglob("*.py")) if "__main__" in p.read_text()]
PICTURES = sorted((ROOT / "benchmarks").rglob("*.png"))
PAGE = (ROOT / "docs" / "results.md").read_text()


@pytest.mark.parametrize("script", BENCHMARKS, ids=lambda path: path.stem)
def test_every_benchmark_has_its_command(script):
    assert f"    python {script.relative_to(ROOT).as_posix()}" in PAGE


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.stem)
def test_every_picture_of_a_benchmark_is_shown(picture):
    assert f"](../{picture.relative_to(ROOT).as_posix()})" in PAGE
