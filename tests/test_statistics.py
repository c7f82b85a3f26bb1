"""Means, intervals and verdicts over seeds and courses, against published and known values."""

import re

import numpy as np
import pytest

from robopolicy.experiments.statistics import (
    interquartile_mean,
    interval,
    permutation_p,
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


def test_an_interquartile_mean_leaves_out_a_quarter_at_each_end():
    assert interquartile_mean(np.array([[-100.0, 1.0, 60.0, 3.0], [4.0, 5.0, 2.0, 700.0]])) == 3.5


def test_an_interval_leaves_out_a_fortieth_at_each_end():
    # Of 16 trainings, half earn 1. Four or fewer in a draw have a probability of 0.038, three or fewer 0.011.
    found = interval(np.repeat([[0.0], [1.0]], 8, axis=0), np.mean)
    assert found == (0.5, 4 / 16, 12 / 16)


def test_the_same_scores_give_the_same_numbers():
    several = np.random.default_rng(0).normal(size=(8, 5, 6))
    assert interval(several[0], resamples=20) == interval(several[0], resamples=20)
    # Fewer than the 252 ways to deal ten trainings, so that these are drawn.
    first, again = ([permutation_p(several[0], one, 50) for one in several[1:]] for _ in range(2))
    assert first == again


def test_a_difference_is_of_one_draw_of_courses_and_two_of_trainings():
    # Courses differ far more than trainings.
    scores = np.arange(4.0)[:, None] + 100.0 * np.arange(20.0)
    found = verdict("a", scores + 1.0, "b", scores, resamples=100).difference
    assert found.value == pytest.approx(1.0)
    assert -3.0 < found.low < 0.0 < 2.0 < found.high < 5.0


@pytest.mark.slow
def test_the_interval_covers_the_mean_of_seeds_at_its_level():
    # Seeds differ by 1, courses by 1, the rest by 0.3. Percentile intervals of ten seeds cover some 90 %.
    # False alarms: fewer than 79 of 100 1e-3; all of 100, 3e-5.
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        scores = rng.normal(size=(10, 1)) + rng.normal(size=(1, 40)) + rng.normal(0, 0.3, (10, 40))
        found = interval(scores, resamples=150)
        assert found.low < found.value < found.high
        covered += found.low <= 0.0 <= found.high
    assert 79 <= covered < 100


@pytest.mark.slow
def test_verdicts_can_come_out_either_way():
    rng = np.random.default_rng(1)
    low, high = rng.normal(0.0, 0.3, (5, 30)), rng.normal(1.0, 0.3, (5, 30))
    # 2 of the 252 ways to deal ten trainings to two groups of five differ as much.
    assert verdict("a", high, "b", low).words == "a above b, p = 0.0079, n = 5 and 5 seeds, 30 courses"
    assert verdict("a", low, "b", high).words.startswith("b above a, ")
    found = verdict("a", low, "b", rng.normal(0.0, 0.3, (4, 30)))
    assert re.fullmatch(r"no difference shown, p = 0\.\d+, n = 5 and 4 seeds, 30 courses", found.words)
    assert found.difference.low < 0 < found.difference.high
    assert 0.3 < found.improvement < 0.7
    same = verdict("a", low, "b", low)
    assert (same.difference.value, same.p, same.improvement) == (0.0, 1.0, 0.5)


@pytest.mark.rest_slow
@pytest.mark.parametrize(("count", "others"), [(2, 2), (3, 3), (3, 8)])
def test_a_few_trainings_show_no_difference_however_large(count, others):
    rng = np.random.default_rng(0)
    low, high = rng.normal(0.0, 0.1, (others, 50)), rng.normal(9.0, 0.1, (count, 50))
    found = verdict("a", high, "b", low)
    assert found.difference.low > 8
    assert found.words.startswith("no difference shown, ")


def test_means_and_middle_halves_that_disagree_show_no_difference():
    # On one course of ten, `a` loses more than it gains on all others together.
    steady = np.random.default_rng(0).normal(0.0, 0.01, (5, 40))
    risky = 1.0 + steady[::-1]
    risky[:, ::10] = -50.0
    for found in (verdict("a", risky, "b", steady), verdict("b", steady, "a", risky)):
        assert found.p < 0.05
        assert found.words.startswith("no difference shown, ")


def test_equals_are_seldom_told_apart():
    # Trainings differ by 1, episodes by 0.1. At 5 %, more than 7 of 40 have a probability of 1e-3.
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 2, 4, 1)) + rng.normal(0.0, 0.1, (40, 2, 4, 10))
    words = [verdict("a", one, "b", another, resamples=100).words for one, another in scores]
    assert sum("above" in each for each in words) <= 7


def test_seeds_that_fail_altogether_widen_the_interval():
    # One training of five fails on every course: more courses do not make the result more certain.
    scores = np.ones((5, 200))
    scores[0] = 0.0
    few, many = interval(scores[:, :20], np.mean), interval(scores, np.mean)
    assert many.high - many.low == pytest.approx(few.high - few.low, abs=0.05)
    assert many.low < 0.5


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


@pytest.mark.parametrize("offset", [0.0, 100.0, 1000.0, 1e6])
def test_deals_with_equal_differences_count_alike_at_every_size(offset):
    mine, theirs = (
        offset + np.array([[0.2], [0.4], [0.3], [0.5]]),
        offset + np.array([[0.1], [0], [0.1], [0.2]]),
    )
    assert permutation_p(mine, theirs) == pytest.approx(4 / 70)  # by hand, in fractions
    assert verdict("a", mine, "b", theirs).words.startswith("no difference shown")
