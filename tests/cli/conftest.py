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
