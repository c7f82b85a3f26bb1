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
from scipy.stats import permutation_test, trim_mean

from robopolicy.naming import counted

Array = NDArray[np.float64]
RESAMPLES, LEVEL = 2000, 0.95
AT_ONCE = 10**6  # numbers of resamples in memory
FEWEST = 2  # training seeds of an interval
FEWEST_OF_VERDICT = 4


class Interval(NamedTuple):
    """An estimate and the ends of its bootstrap interval."""

    value: float
    low: float
    high: float


class Verdict(NamedTuple):
    """A comparison in words, and what it rests on.

    difference: of interquartile means. p: of the permutation test. improvement: probability of improvement.
    """

    words: str
    difference: Interval
    p: float
    improvement: float


def interquartile_mean(scores: Array, axis: int | None = None) -> Array:
    """The mean of the middle half of all scores; a quarter, rounded down, is left out at each end.

    With `axis`, of the scores along it.
    """
    means: Array = trim_mean(scores, 0.25, axis=axis)
    return means


def interval(
    scores: Array, statistic: Callable[..., Array] = interquartile_mean, resamples: int = RESAMPLES
) -> Interval:
    """`statistic` of `scores` [S, C] with its 95 % percentile interval over training seeds and courses.

    `statistic` takes an `axis`, as `numpy.mean` does. Raises ValueError for one training seed, and for scores
    that are not finite.
    """
    scores, rng = _checked("scores", scores), np.random.default_rng(0)

    def some(count: int) -> Array:
        drawn = [scores[np.ix_(*_draw(scores.shape, rng))].ravel() for _ in range(count)]
        return statistic(np.stack(drawn), axis=1)

    return Interval(float(statistic(scores)), *_ends(_in_parts(some, resamples, scores.size)))


def probability_of_improvement(better: Array, worse: Array) -> float:
    """The probability that a training of `better` [S, C] is above one of `worse` [T, C] on a course.

    Equal scores count half. It is the mean over courses of the statistic of Mann and Whitney.
    """
    above = better[:, None] > worse[None]
    equal = better[:, None] == worse[None]
    return float((above + 0.5 * equal).mean())


def has_verdict(scores: Array, other_scores: Array) -> bool:
    """Whether there are enough trainings of both to show a difference."""
    return min(len(scores), len(other_scores)) >= FEWEST_OF_VERDICT


def verdict(
    name: str,
    scores: Array,
    other: str,
    other_scores: Array,
    resamples: int = RESAMPLES,
    p: float | None = None,
) -> Verdict:
    """Whether `name` with `scores` [S, C] is above `other` with [T, C] on the same courses.

    It is if the 95 % interval of the difference of the interquartile means leaves out 0, and if at most 5 %
    of the ways to deal the S + T trainings to two groups differ as much (a permutation test of two sides).
    The bootstrap alone is too sure of few trainings: with two of each, it finds a difference between equals
    in a third of the cases. Fewer than four trainings of either never show a difference. The test compares
    plain means, since interquartile means leave out a training of four. Its p is twice the share of the
    smaller tail. Means that differ in the other direction than interquartile means show no difference.

    `p` is that of the test, corrected for other pairs of the same table; by default that of this pair alone.
    Raises ValueError for different numbers of courses, and as `interval`.
    """
    mine, theirs = _checked(name, scores), _checked(other, other_scores)
    if mine.shape[1] != theirs.shape[1]:
        raise ValueError(
            f"courses is {mine.shape[1]} and {theirs.shape[1]}: {name} and {other} need the same"
        )
    rng = np.random.default_rng(0)

    def some(count: int) -> Array:
        ours, others = [], []
        for _ in range(count):
            rows, courses = _draw(mine.shape, rng)
            ours.append(mine[np.ix_(rows, courses)].ravel())
            others.append(theirs[np.ix_(rng.integers(len(theirs), size=len(theirs)), courses)].ravel())
        return _difference(np.stack(ours), np.stack(others), axis=1)

    found = _in_parts(some, resamples, mine.size + theirs.size)
    difference = Interval(float(_difference(mine, theirs)), *_ends(found))
    p = permutation_p(mine, theirs, resamples) if p is None else p
    words, of_means = "no difference shown", mine.mean() - theirs.mean()
    is_enough = has_verdict(mine, theirs) and p <= 1 - LEVEL
    if is_enough and difference.low > 0 and of_means > 0:
        words = f"{name} above {other}"
    elif is_enough and difference.high < 0 and of_means < 0:
        words = f"{other} above {name}"
    words += f", p = {p:.2g}, n = {len(mine)} and {len(theirs)} seeds, {counted(mine.shape[1], 'courses')}"
    return Verdict(words, difference, p, probability_of_improvement(mine, theirs))


def _difference(mine: Array, theirs: Array, axis: int | None = None) -> Array:
    return interquartile_mean(mine, axis) - interquartile_mean(theirs, axis)


def _in_parts(some: Callable[[int], Array], resamples: int, size: int) -> Array:
    """`some(count)` of all resamples of `size` numbers, about `AT_ONCE` numbers at a time."""
    count = max(1, AT_ONCE // size)
    return np.concatenate([some(min(count, resamples - first)) for first in range(0, resamples, count)])


def permutation_p(mine: Array, theirs: Array, resamples: int = RESAMPLES) -> float:
    """The p of `verdict`: twice the share of the deals of all trainings that differ as much to the same side.

    More than `resamples` deals are drawn at random.
    """
    size = max(np.abs(mine).max(), np.abs(theirs).max()) or 1.0

    def difference(one: Array, another: Array, axis: int) -> Array:
        # Without rounding, deals with equal differences would differ in their last bits.
        return np.round((one.mean(axis=axis) - another.mean(axis=axis)) / size, 12)

    result = permutation_test(
        (mine.mean(axis=1), theirs.mean(axis=1)),
        difference,
        vectorized=True,
        n_resamples=resamples,
        random_state=0,
    )
    return float(result.pvalue)


def _draw(shape: tuple[int, ...], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Indices of as many rows and columns as there are, with repetition."""
    return [rng.integers(size, size=size) for size in shape]


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
