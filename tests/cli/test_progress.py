"""What a training prints while it runs, where there is no bar."""

import pytest

from robopolicy.cli import progress
from robopolicy.cli.progress import CloningProgress
from robopolicy.training.bc import BCConfig


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_long_stretch_without_records_prints_its_rate(clock, capsys):
    with CloningProgress(BCConfig(steps=100, batch=8), "all on a toy") as shown:
        shown.hooks().on_resume(10)
        clock[0] += 300.0  # compiling is no step
        for _ in range(11):
            shown.step()
            clock[0] += 4.0
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if line.startswith("step")] == ["step    19/100  2 images/s  left 5:24"]
