"""Pairs of queries and keys, whose lengths and angles determine most predicted errors."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from robopolicy.attention.theory import Doubles, angle

SAMPLES = 128
POOL = 2**15  # pairs from which the samples are taken


class Pairs(NamedTuple):
    """Pairs of a query and a key, one in each row.

    Attributes:
      x, y: queries and keys, [P, D].
      square: [P], the mean of |q + k|^2 over all queries and keys of the pair's frame and head; some
        mechanisms adapt to it.
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


def sample_pairs(heads: Sequence[tuple[Any, Any]], seed: int = 0) -> Pairs:
    """A representative sample of the pairs in `heads`, queries [T, D] and keys [S, D] of one head each.

    Raises ValueError if a query or key is zero or not finite.
    """
    rng = np.random.default_rng(seed)
    each = -(-POOL // len(heads))
    xs, ys, squares = [], [], []
    for q, k in heads:
        q, k = np.asarray(q, np.float64), np.asarray(k, np.float64)
        if not all(np.isfinite(tokens).all() and np.any(tokens, axis=1).all() for tokens in (q, k)):
            raise ValueError("a query or key is zero or not finite: its error cannot be predicted")
        xs.append(q[rng.integers(len(q), size=each)])
        ys.append(k[rng.integers(len(k), size=each)])
        mean = np.mean(np.sum(q**2, 1)) + 2 * q.mean(0) @ k.mean(0) + np.mean(np.sum(k**2, 1))
        squares.append(np.full(each, mean))
    return _stratified(Pairs(np.concatenate(xs), np.concatenate(ys), np.concatenate(squares)))


def random_directions(length: float, dim: int, seed: int = 0) -> Pairs:
    """Pairs of vectors with independent random directions and the same length."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((2, POOL, dim))
    x, y = (length * a / np.linalg.norm(a, axis=1, keepdims=True) for a in (x, y))
    return _stratified(Pairs(x, y, np.full(POOL, 2.0 * length**2)))


def _stratified(pool: Pairs) -> Pairs:
    """`SAMPLES` pairs at equal steps of the rank of |x + y|, on which errors depend most."""
    order = np.argsort(np.sum((pool.x + pool.y) ** 2, axis=1), kind="stable")
    chosen = order[((np.arange(SAMPLES) + 0.5) * len(order) / SAMPLES).astype(int)]
    return Pairs(pool.x[chosen], pool.y[chosen], pool.square[chosen])


def in_width(pairs: Pairs, dim: int, seed: int = 0) -> Pairs:
    """Pairs of width `dim`, two or more, with the same lengths and angles and random orientations."""
    rng = np.random.default_rng(seed)
    lengths = [np.linalg.norm(a, axis=1) for a in (pairs.x, pairs.y)]
    between = angle(pairs.x, pairs.y)
    # For each pair, two orthonormal directions from the uniform distribution.
    plane, _ = np.linalg.qr(rng.standard_normal((len(pairs.x), dim, 2)))
    first, second = plane[..., 0], plane[..., 1]
    y = np.cos(between)[:, None] * first + np.sin(between)[:, None] * second
    return Pairs(lengths[0][:, None] * first, lengths[1][:, None] * y, pairs.square)
