"""Means, intervals and verdicts over seeds and courses, against published and known values."""

import re

import numpy as np
import pytest

from robopolicy.experiments.statistics import (
    interquartile_mean,
    interval,
    probability_of_improvement,
    verdict,
)

# The examples of rliable's own tests (tests/rliable/metrics_test.py): runs x tasks.
X = np.array([[1, 2], [2, 2], [1, 1], [2, 1]], float)
Y = np.array([[1, 1], [2, 2], [3, 3]], float)


def test_values_are_those_of_rliable():
    assert interquartile_mean(X) == 1.5
    assert interquartile_mean(Y) == 2.0
    assert probability_of_improvement(X, Y) == pytest.approx(1 / 3)


def test_a_batch_of_scores_has_the_means_of_its_members():
    scores = np.random.default_rng(0).normal(size=(5, 4, 7))
    np.testing.assert_allclose(interquartile_mean(scores), [interquartile_mean(one) for one in scores])


def test_the_interval_covers_the_mean_of_seeds_at_its_level():
    # Seeds differ by 1, courses by 1, the rest by 0.3. Percentile intervals of ten seeds cover some 90 %.
    # False alarms: 120 of 150 or less 1e-4; all of 150, with 95 %, 5e-4.
    rng, covered = np.random.default_rng(0), 0
    for _ in range(150):
        scores = rng.normal(size=(10, 1)) + rng.normal(size=(1, 40)) + rng.normal(0, 0.3, (10, 40))
        found = interval(scores, resamples=400)
        assert found.low < found.value < found.high
        covered += found.low <= 0.0 <= found.high
    assert 120 <= covered < 150


def test_verdicts_can_come_out_either_way():
    rng = np.random.default_rng(1)
    low, high = rng.normal(0.0, 0.3, (5, 30)), rng.normal(1.0, 0.3, (5, 30))
    assert verdict("a", high, "b", low).words == "a above b"
    assert verdict("a", low, "b", high).words == "b above a"
    found = verdict("a", low, "b", rng.normal(0.0, 0.3, (4, 30)))
    assert found.words == "no difference shown, n = 5 and 4 seeds, 30 courses"
    assert found.difference.low < 0 < found.difference.high
    assert 0.3 < found.improvement < 0.7
    same = verdict("a", low, "b", low)
    assert (same.difference.value, same.improvement) == (0.0, 0.5)


def test_seeds_that_fail_altogether_widen_the_interval():
    # One training of five fails on every course: more courses do not make the result more certain.
    scores = np.ones((5, 200))
    scores[0] = 0.0
    few, many = interval(scores[:, :20], np_mean), interval(scores, np_mean)
    assert many.high - many.low == pytest.approx(few.high - few.low, abs=0.05)
    assert many.low < 0.5


def np_mean(scores):
    return scores.mean(axis=(-2, -1))


@pytest.mark.parametrize(
    ("scores", "text"),
    [
        (np.ones((1, 5)), "scores has 1 training seed: an interval needs 2 or more"),
        (np.ones(5), "scores has scores of shape (5,): it must be [seeds, courses]"),
        (np.array([[1.0, np.nan], [0.0, 1.0]]), "scores has scores that are not finite"),
    ],
)
def test_what_has_no_interval_is_refused(scores, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        interval(scores)


def test_scores_on_other_courses_are_refused():
    with pytest.raises(ValueError, match=r"^courses is 3 and 4: a and b need the same$"):
        verdict("a", np.ones((2, 3)), "b", np.ones((2, 4)))
