"""Queries and keys at whose lengths and angles errors are predicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robopolicy.attention.theory import angle

Doubles = NDArray[np.float64]
KEPT = 128
POOL = 2**15  # pairs among which the kept ones stand for equal shares


class Pairs(NamedTuple):
    """Pairs of a query and a key, a pair a row.

    Attributes:
      x, y: queries and keys, [P, D].
      square: [P], the mean of |q + k|^2 over all queries and keys of the frame and head that a pair is from;
        some mechanisms adapt to it.
    """

    x: Doubles
    y: Doubles
    square: Doubles

    @property
    def dim(self) -> int:
        """D."""
        return self.x.shape[1]

    def summary(self) -> dict[str, float]:
        """Lengths of queries and keys, and the angles between them in degrees."""
        degrees = np.degrees(angle(self.x, self.y))
        return {
            "query_length": float(np.mean(np.linalg.norm(self.x, axis=1))),
            "key_length": float(np.mean(np.linalg.norm(self.y, axis=1))),
            "angle_mean": float(np.mean(degrees)),
            "angle_std": float(np.std(degrees)),
        }


def recorded(heads: Sequence[tuple[Any, Any]], seed: int = 0) -> Pairs:
    """Pairs that stand for those of recorded queries and keys, [T, D] and [S, D] of one head each.

    Raises ValueError for those that are not finite, or zero.
    """
    rng = np.random.default_rng(seed)
    each = -(-POOL // len(heads))
    xs, ys, squares = [], [], []
    for q, k in heads:
        q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
        if not (
            np.all(np.isfinite(q))
            and np.all(np.isfinite(k))
            and np.all(np.any(q, 1))
            and np.all(np.any(k, 1))
        ):
            raise ValueError(
                "queries and keys hold one that is zero or not finite: its error has no prediction"
            )
        xs.append(q[rng.integers(len(q), size=each)])
        ys.append(k[rng.integers(len(k), size=each)])
        mean = np.mean(np.sum(q**2, 1)) + 2 * q.mean(0) @ k.mean(0) + np.mean(np.sum(k**2, 1))
        squares.append(np.full(each, mean))
    return _spread(Pairs(np.concatenate(xs), np.concatenate(ys), np.concatenate(squares)))


def random_directions(length: float, dim: int, seed: int = 0) -> Pairs:
    """Pairs of independent directions, all of one length."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, POOL, dim))
    x, y = (length * a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, y))
    return _spread(Pairs(x, y, np.full(POOL, 2.0 * length**2)))


def _spread(pool: Pairs) -> Pairs:
    """`KEPT` pairs at equal steps of the rank of |x + y|, which is what errors depend on most."""
    order = np.argsort(np.sum((pool.x + pool.y) ** 2, axis=1), kind="stable")
    chosen = order[((np.arange(KEPT) + 0.5) * len(order) / KEPT).astype(int)]
    return Pairs(pool.x[chosen], pool.y[chosen], pool.square[chosen])


def in_width(pairs: Pairs, dim: int, seed: int = 0) -> Pairs:
    """Pairs of the same lengths and angles among vectors of another width, two or more, turned at random."""
    rng = np.random.default_rng(seed)
    lengths = [np.linalg.norm(a, axis=1) for a in (pairs.x, pairs.y)]
    between = angle(pairs.x, pairs.y)
    # An orthonormal pair of directions for each pair of vectors, uniform over all of them.
    plane, _ = np.linalg.qr(rng.standard_normal((len(pairs.x), dim, 2)))
    first, second = plane[..., 0], plane[..., 1]
    y = np.cos(between)[:, None] * first + np.sin(between)[:, None] * second
    return Pairs(lengths[0][:, None] * first, lengths[1][:, None] * y, pairs.square)
