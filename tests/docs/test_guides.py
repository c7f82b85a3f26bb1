"""What the guides to things of one's own show in Python runs as it stands, made small."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = {
    "generations=30, population=24": "generations=1, population=2, held_out=2",
    "episodes=(3,)": "episodes=(1,)",
    "workers=2, places=64": "workers=1, places=2",
}


def blocks(guide: str) -> list[str]:
    """The Python of a guide."""
    page = (ROOT / "docs" / "guides" / guide).read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


@pytest.mark.slow
def test_the_mechanism_of_the_guide_is_unbiased(capsys):
    names: dict[str, object] = {}
    for block in blocks("own-mechanism.md"):
        exec(block, names)
    # 300 draws of an estimate with a relative error of 0.3 to 0.5: a bias would show from 0.15 on.
    assert float(capsys.readouterr().out) < 0.15


@pytest.mark.slow
def test_the_environment_of_the_guide_is_learnt_in(tmp_path):
    environment, training, *after = blocks("own-environment.md")
    for full, less in SMALL.items():
        assert full in training
        training = training.replace(full, less)
    (tmp_path / "spot.py").write_text(environment)
    (tmp_path / "train.py").write_text(training + textwrap.indent("\n".join(after), "    "))
    run = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": "--xla_backend_optimization_level=0"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "generation  1, held-out return" in run.stdout
    assert "'off'" in run.stdout
