"""Predicted errors of reads of a memory against those of draws of features."""

import numpy as np
import pytest

from robopolicy.attention.catalogue import MECHANISMS
from robopolicy.experiments.memory_plan import specs
from robopolicy.plan import reads
from robopolicy.plan.reads import COVARIANCES, Window, measured, predicted


@pytest.fixture(scope="module")
def windows():
    """Places along a line, coded by waves; what is written there is a gap or none."""
    rng = np.random.default_rng(0)

    def code(places):
        phases = np.pi * places[..., None] * np.arange(1, 5)
        return 0.3 * np.concatenate([np.cos(phases), np.sin(phases)], axis=-1)

    places = rng.uniform(-1, 1, (8, 24))
    return [Window(code(rng.uniform(-1, 1, 6)), code(places), (np.sin(5 * places) > 0) * 1.0, 0.9, 0.0)]


def test_every_mechanism_that_can_be_a_memory_is_in_a_plan():
    assert {name for _, name, _ in specs()} == set(MECHANISMS)


def test_a_mechanism_of_ones_own_is_in_a_plan_with_its_example(monkeypatch):
    own = MECHANISMS["positive"]._replace(example="own(m=64)")
    monkeypatch.setitem(MECHANISMS, "own", own)
    assert ("own(m=64)", "own", 0) in specs()


@pytest.mark.slow
@pytest.mark.parametrize("name", COVARIANCES)
def test_the_error_of_a_read_is_as_predicted(windows, monkeypatch, name):
    # Over 400 draws the measured error has a standard error of some 3 %; the first order leaves out as much.
    monkeypatch.setattr(reads, "STRIDE", 1)
    monkeypatch.setattr(reads, "DRAWS", 400)
    error = predicted(name, windows).of(512)
    assert error == pytest.approx(measured(f"{name}(m=512, coupling=iid)", windows), rel=0.15)


def test_of_the_updates_that_a_prediction_reads_the_newest_is_one(windows):
    (window,) = windows
    newest = window._replace(k=window.k[-1:], v=window.v[-1:])
    assert predicted("positive", windows) == predicted("positive", [newest])


def test_where_weights_err_too_much_nothing_is_predicted(windows, monkeypatch):
    monkeypatch.setattr(reads, "STRIDE", 1)
    found = predicted("positive", windows)
    assert found.of(1) is None
    assert found.of(10**6) == pytest.approx(np.sqrt(found.read) / 1e3)
