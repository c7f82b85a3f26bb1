"""What a training prints while it runs, where there is no bar."""

from types import SimpleNamespace

import pytest

from robopolicy.cli import DONE, INTERRUPTED, main, progress, train_bc, train_es
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
    assert [line for line in said if line.startswith("step")] == ["step    18/100  2 images/s  left 5:28"]


@pytest.mark.parametrize(
    ("trainer", "module", "words"),
    [
        ("es", train_es, "--preset paper --engine mujoco --patch 8 --attention none --generations 5"),
        ("bc", train_bc, "--task bimanual-sweep --data datasets/x-v0 --steps 5"),
    ],
)
@pytest.mark.parametrize(
    ("number", "ended_by", "code"),
    [(3, "", INTERRUPTED), (3, "the budget is spent", DONE), (5, "", DONE), (None, "", DONE)],
)
def test_a_training_that_was_stopped_before_its_end_is_no_success(
    monkeypatch, capsys, trainer, module, words, number, ended_by, code
):
    def trained(*arguments, **settings):
        record = {"generation": number, "step": number, "ended_by": ended_by}
        return SimpleNamespace(record=record if number else None)

    monkeypatch.setattr(module, f"train_{trainer}", trained)
    monkeypatch.setattr(module, "command_to_resume", lambda *_: "robopolicy train --resume")
    assert main(["train", trainer, "--out", "runs/new", *words.split()]) == code
    assert ("go on with: robopolicy train --resume" in capsys.readouterr().err) == (code == INTERRUPTED)
