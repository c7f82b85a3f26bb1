"""Means, intervals and verdicts over training seeds and courses.

Scores are arrays [S, C]: a row for each training seed, a column for each course. The interquartile mean and
the probability of improvement are those of Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (NeurIPS 2021), section 4. Their bootstrap draws the runs of each task on their own,
which fits runs that were trained for one task each. One training here plays all courses, and its results on
them go together, so ours draws whole trainings, and then courses. For one course, both are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES, LEVEL = 2000, 0.95
FEWEST = 2  # training seeds of an interval


class Interval(NamedTuple):
    """An estimate and the ends of its bootstrap interval."""

    value: float
    low: float
    high: float


class Verdict(NamedTuple):
    """A comparison in words, the difference of interquartile means, and the probability of improvement."""

    words: str
    difference: Interval
    improvement: float


def interquartile_mean(scores: Array) -> Array:
    """The mean of the middle half of all scores [..., S, C]: [...].

    A quarter of the scores is left out at each end, rounded down.
    """
    flat = np.sort(np.asarray(scores, float).reshape(*np.shape(scores)[:-2], -1), axis=-1)
    cut = flat.shape[-1] // 4
    return np.asarray(flat[..., cut : flat.shape[-1] - cut].mean(axis=-1))


def interval(
    scores: Array, statistic: Callable[[Array], Array] = interquartile_mean, resamples: int = RESAMPLES
) -> Interval:
    """`statistic` of `scores` [S, C] with its 95 % percentile interval over training seeds and courses.

    Raises ValueError for one training seed, and for scores that are not finite.
    """
    scores = _checked("scores", scores)
    count, width = scores.shape
    seeds, courses = _draws(resamples, count, width, np.random.default_rng(0))
    found = statistic(scores[seeds[:, :, None], courses[:, None, :]])
    return Interval(float(statistic(scores)), *_ends(found))


def probability_of_improvement(better: Array, worse: Array) -> float:
    """The probability that a training of `better` [S, C] is above one of `worse` [T, C] on a course.

    Equal scores count half. It is the mean over courses of the statistic of Mann and Whitney.
    """
    above = better[:, None] > worse[None]
    equal = better[:, None] == worse[None]
    return float((above + 0.5 * equal).mean())


def verdict(name: str, scores: Array, other: str, other_scores: Array) -> Verdict:
    """Whether `name` with `scores` [S, C] is above `other` with [T, C] on the same courses.

    It is if the 95 % interval of the difference of the interquartile means leaves out 0. Each resample draws
    the same courses for both.
    """
    mine, theirs = _checked(name, scores), _checked(other, other_scores)
    if mine.shape[1] != theirs.shape[1]:
        raise ValueError(
            f"courses is {mine.shape[1]} and {theirs.shape[1]}: {name} and {other} need the same"
        )
    rng = np.random.default_rng(0)
    seeds, courses = _draws(RESAMPLES, len(mine), mine.shape[1], rng)
    others = rng.integers(len(theirs), size=(RESAMPLES, len(theirs)))
    means = [
        interquartile_mean(s[drawn[:, :, None], courses[:, None, :]])
        for s, drawn in ((mine, seeds), (theirs, others))
    ]
    value = float(interquartile_mean(mine) - interquartile_mean(theirs))
    difference = Interval(value, *_ends(means[0] - means[1]))
    words = f"no difference shown, n = {len(mine)} and {len(theirs)} seeds, {mine.shape[1]} courses"
    if difference.low > 0:
        words = f"{name} above {other}"
    elif difference.high < 0:
        words = f"{other} above {name}"
    return Verdict(words, difference, probability_of_improvement(mine, theirs))


def _draws(
    resamples: int, seeds: int, courses: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices [R, S] of seeds and [R, C] of courses."""
    return rng.integers(seeds, size=(resamples, seeds)), rng.integers(courses, size=(resamples, courses))


def _ends(found: Array) -> tuple[float, float]:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(found, [tail, 100 - tail])
    return float(low), float(high)


def _checked(name: str, scores: Array) -> Array:
    array = np.asarray(scores, float)
    if array.ndim != 2 or array.size == 0:
        raise ValueError(f"{name} has scores of shape {array.shape}: it must be [seeds, courses]")
    if len(array) < FEWEST:
        raise ValueError(f"{name} has 1 training seed: an interval needs {FEWEST} or more")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has scores that are not finite")
    return array
