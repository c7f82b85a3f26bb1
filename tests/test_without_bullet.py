"""The tests themselves without PyBullet, which has no wheel for most machines."""

import subprocess
import sys
from pathlib import Path

import pytest

HIDDEN = "import sys, pytest; sys.modules['pybullet'] = None; sys.exit(pytest.main(sys.argv[1:]))"


@pytest.mark.slow
def test_what_needs_bullet_is_skipped_and_its_number_told():
    folder = Path(__file__).parent / "envs"
    files = [str(folder / name) for name in ("test_contract.py", "test_physics.py", "test_sweep.py")]
    words = [
        sys.executable,
        "-c",
        HIDDEN,
        *files,
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow and not full",
    ]
    run = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stdout[-2000:]
    *_, told, counted = run.stdout.splitlines()
    number = int(told.removesuffix(" tests of Bullet skipped: pybullet is not installed"))
    assert f"{number} skipped" in counted
    assert number > 10
