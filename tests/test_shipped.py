"""The policies that ship with the package, as a user who has nothing else meets them."""

import json
from importlib.resources import files

import pytest

from robopolicy.cli import main
from robopolicy.cli.runs import load_run

SHIPPED = sorted(folder.name for folder in (files("robopolicy.assets") / "policies").iterdir())
ENGINES = ("mujoco", "bullet")


def recorded(name):
    return json.loads((files("robopolicy.assets") / "policies" / name / "evaluation.json").read_text())


def test_the_mechanisms_that_are_compared_are_shipped():
    kinds = ("angular-8x8", "no-vision", "positive-256", "softmax")
    assert [f"stepping-stones-{kind}" for kind in kinds] == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_it_loads_and_says_what_it_was_trained_with(name):
    trained = load_run(name)
    assert trained.run["environment"]["engine"] == "mujoco"
    assert trained.run["git"]["commit"]
    assert trained.run["git"]["modified"] is False
    for engine in ENGINES:
        assert recorded(name)[engine]["episodes"] == 100
        assert recorded(name)[engine]["seeds"] == list(range(9000, 9100))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", SHIPPED)
def test_it_does_what_its_evaluation_says(capsys, name, engine):
    words = ["evaluate", name, "--engine", engine, "--episodes", "2", "--json"]
    assert main(words) == 0
    played = json.loads(capsys.readouterr().out)
    # Bits may differ between kinds of machines, and with them a course that hangs by a thread.
    assert played["returns"] == pytest.approx(recorded(name)[engine]["returns"][:2], abs=0.5)
