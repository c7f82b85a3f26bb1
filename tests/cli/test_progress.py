"""What a training prints while it runs, where there is no bar."""

from types import SimpleNamespace

import pytest

from robopolicy.cli import DONE, INTERRUPTED, main, progress, train_bc, train_es
from robopolicy.cli.progress import CloningProgress, RecordingProgress, TrainingProgress
from robopolicy.training.bc import BCConfig
from robopolicy.training.es import ESConfig


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


def test_one_of_a_kind_is_in_the_singular(capsys):
    with TrainingProgress(ESConfig(generations=1, population=2, episodes=(1,)), "all", "hard", ()) as shown:
        shown.hooks().on_begin("on two workers")
    with CloningProgress(BCConfig(steps=1, batch=1), "all") as shown:
        shown.hooks().on_begin("on a toy")
    RecordingProgress(1, "bimanual-sweep", "").begin()
    said = capsys.readouterr().err.splitlines()
    assert said[::2] == [
        "Training all: 1 generation of 2 episodes",
        "Cloning with all: 1 step of 1 frame",
        "Recording 1 demonstration of bimanual-sweep",
    ]


@pytest.mark.parametrize(
    ("seconds", "left"), [(59.9, "0:59"), (3599, "59:59"), (3600, "1:00:00"), (108e3, "30:00:00")]
)
def test_the_time_left_has_hours(clock, capsys, seconds, left):
    shown = RecordingProgress(2, "bimanual-sweep", "")
    clock[0] += seconds
    shown.episode(SimpleNamespace(seed=0, steps=400, score=0.0, unsolved=""), 1)
    assert capsys.readouterr().err.endswith(f"left {left}\n")


def test_the_time_left_is_that_of_the_work_that_is_left(clock, capsys):
    recorded = RecordingProgress(10, "bimanual-sweep", "")
    clock[0] += 30.0
    recorded.episode(SimpleNamespace(seed=5, steps=400, score=0.0, unsolved=""), 6)  # the first after a stop
    assert capsys.readouterr().err.endswith("left 2:00\n")
    config = ESConfig(generations=10, population=2, episodes=(1,))
    numbers = ("return_mean", "return_best", "episodes_per_second", "share_in_episodes")
    record = {"generation": 4, "environment": "hard", "episodes": 2, **dict.fromkeys(numbers, 0.5)}
    with TrainingProgress(config, "all", "hard", ()) as trained:
        clock[0] += 60.0
        trained.record(record)  # the first after a stop
    assert capsys.readouterr().err.endswith("left 6:00\n")


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
