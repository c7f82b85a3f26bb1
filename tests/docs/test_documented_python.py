"""The Python of each page runs, from beginning to end, in a process of its own."""

import os
import subprocess
import sys

import pytest
from documented import PAGES, named, python_blocks

# Blocks that a page saves as a file.
FILES = {("docs/guides/own-environment.md", 0): "spot.py"}
# Optional packages that pages need.
NEEDS = {
    "docs/guides/lerobot.md": "pyarrow",
    "docs/guides/stable-baselines3.md": "stable_baselines3",
    "docs/guides/unitree.md": "cyclonedds",
}
# Reduced settings of pages.
SMALL = {
    "README.md": [
        ('engine="mujoco")', 'engine="mujoco", episode_seconds=0.5)'),
        ("range(9000, 9003)", "range(9000, 9001)"),
        ('"walk.mp4")', '"walk.mp4", size=(320, 240))'),
        ('"walker-bundle")', '"walker-bundle", observations=5)'),
    ],
    "docs/guides/own-environment.md": [
        ("generations=30, population=24", "generations=1, population=2"),
        ("workers=2, places=64", "workers=1, places=4"),
    ],
    "docs/guides/lerobot.md": [('"arm-bundle")', '"arm-bundle", observations=5)')],
    "docs/guides/own-mechanism.md": [("range(500)", "range(3)")],
    "docs/guides/own-quadruped.md": [("range(9000, 9020)", "range(9000, 9001)")],
    "docs/guides/stable-baselines3.md": [
        ("n_envs=8", "n_envs=1"),
        ('"n_steps": 256, "batch_size": 256', '"n_steps": 16, "batch_size": 16'),
        ("60_000", "16"),
        ("range(9000, 9020)", "range(9000, 9001)"),
    ],
}
WITH_PYTHON = [page for page in PAGES if python_blocks(page)]


def test_the_tables_above_match_the_pages():
    blocks = {named(page): python_blocks(page) for page in WITH_PYTHON}
    assert {*NEEDS, *SMALL, *(page for page, _ in FILES)} <= set(blocks)
    for page, changes in SMALL.items():
        for old, _ in changes:
            assert old in "".join(blocks[page])


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_a_page_runs(here, page):
    name = named(page)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    script = ""
    for number, block in enumerate(python_blocks(page)):
        for old, new in SMALL.get(name, []):
            block = block.replace(old, new)
        if (name, number) in FILES:
            (here / FILES[name, number]).write_text(block)
        else:
            script += block + "\n"
    (here / "page.py").write_text(script)
    # Not `python page.py`: other processes that a page starts would run all of it, too.
    words = [sys.executable, "-c", "exec(compile(open('page.py').read(), 'page.py', 'exec'))"]
    # What is compiled runs once.
    unoptimised = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0"}
    done = subprocess.run(words, cwd=here, env=unoptimised, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
