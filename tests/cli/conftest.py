"""For the tests of all commands."""

import pytest

from robopolicy.cli import main


@pytest.fixture
def refused(capsys):
    """Runs a command that must be refused; returns the one line that it says."""

    def run(*words: str) -> str:
        capsys.readouterr()
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1, err
        return err

    return run


@pytest.fixture
def trainer(monkeypatch, tmp_path):
    """The current folder is empty, and no training takes time."""
    monkeypatch.chdir(tmp_path)
    from made_grids import Trainer  # imports more than most commands need

    made = Trainer()
    monkeypatch.setattr("robopolicy.experiments.grid.train_es", made.train)
    monkeypatch.setattr("robopolicy.experiments.stored_evaluations.evaluate", made.evaluate)
    return made
