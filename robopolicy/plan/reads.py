"""Errors of reads of a memory: predicted from covariances of kernel estimates, and measured.

A read is the mean of what was written, weighted by the kernel and by age. Its error is that against exact
softmax over the same tokens, as the root of the mean square over reads and over draws of features, in the
units of what was written.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from robopolicy.attention import attention, theory
from robopolicy.attention.memory import streaming
from robopolicy.attention.theory import Doubles

# Every eighth step, since the camera shows nearly the same on the steps between.
STRIDE, QUERIES = 8, 8
MOST = 0.25  # error of a weighted mean of the kernel, above which the first order is no prediction
DRAWS = 32
UNIT = 2.0  # mean |x + y|^2 of unit tokens at right angles, for which a memory's `optimal_positive` is drawn

COVARIANCES: Mapping[str, Callable[[Doubles, Doubles], Doubles]] = {
    "trigonometric": lambda x, y: theory.trigonometric_covariances(x, y, 1),
    "trigonometric_phase": lambda x, y: theory.trigonometric_phase_covariances(x, y, 1),
    "positive": lambda x, y: theory.positive_covariances(x, y, 1),
    "positive_antithetic": lambda x, y: theory.positive_antithetic_covariances(x, y, 1),
    "optimal_positive": lambda x, y: theory.optimal_positive_covariances(x, y, 1, UNIT),
}
"""Covariances [S, S] of the estimates of one vector; those of m independent vectors are an m-th of them."""


class Window(NamedTuple):
    """What a memory is asked in a step, and what was written before.

    Attributes:
      q: queries [T, D].
      k, v: keys [U, S, D] and values [U, S] of the last U updates, oldest first.
      decay: factor of all that was written, at each update.
      least: the least mean weight of a read.
    """

    q: Doubles
    k: Doubles
    v: Doubles
    decay: float
    least: float

    @property
    def weights(self) -> Doubles:
        """By age, [U]."""
        return np.asarray(self.decay ** np.arange(len(self.k) - 1.0, -1.0, -1.0), np.float64)


class Prediction(NamedTuple):
    """Mean squared errors with one vector: of reads, and of the mean of the kernel relative to it."""

    read: float
    mean: float

    def of(self, m: int) -> float | None:
        """The error of a read with m independent vectors; None where the first order is no prediction."""
        return float(np.sqrt(self.read / m)) if np.sqrt(self.mean / m) <= MOST else None


def predicted(name: str, windows: Sequence[Window]) -> Prediction:
    """The errors of the mechanism `name` of `COVARIANCES`."""
    reads, means = [], []
    for window in windows:
        chosen = slice((len(window.k) - 1) % STRIDE, None, STRIDE)
        y, values = window.k[chosen].reshape(-1, window.k.shape[-1]), window.v[chosen].ravel()
        weights = np.repeat(window.weights[chosen], window.k.shape[1])
        for x in window.q[:: max(1, len(window.q) // QUERIES)]:
            covariances = COVARIANCES[name](x, y)
            reads.append(theory.read_mse(x, y, values, weights, covariances))
            shares = weights / (weights @ theory.kernel(x, y))
            means.append(float(shares @ covariances @ shares))
    return Prediction(float(np.mean(reads)), float(np.mean(means)))


def measured(spec: str, windows: Sequence[Window], seed: int = 0) -> float:
    """The error of reads of a memory with the mechanism `spec`; reads are clipped to [-1, 1] as in a policy.

    All windows have the same decay.
    """
    mechanism, squares = attention(spec), []

    @jax.jit
    def read(features: Any, q: Array, k: Array, v: Array, least: Array) -> Array:
        memory = streaming(spec, float(windows[0].decay))
        tokens, width = k.shape[1:]

        def write(state: Any, token: tuple[Array, Array]) -> tuple[Any, None]:
            return memory.update(features, state, token[0], token[1][:, None]), None

        state, _ = jax.lax.scan(write, memory.init(features, width, 1, tokens), (k, v))
        return jnp.clip(memory.read(features, state, q, least)[:, 0], -1.0, 1.0)

    keys = jax.random.split(jax.random.key(seed), DRAWS)
    draws = [mechanism.init(key, windows[0].q.shape[1]) for key in keys]
    for window in windows:
        arrays = [jnp.asarray(part, jnp.float32) for part in (window.q, window.k, window.v, window.least)]
        exact = _exact(window)
        squares += [np.mean((np.asarray(read(draw, *arrays), np.float64) - exact) ** 2) for draw in draws]
    return float(np.sqrt(np.mean(squares)))


def _exact(window: Window) -> Doubles:
    """The reads [T] of exact softmax."""
    keys = window.k.reshape(-1, window.k.shape[-1])
    weights = np.exp(window.q @ keys.T) * np.repeat(window.weights, window.k.shape[1])
    return np.asarray(weights @ window.v.ravel() / weights.sum(axis=1))
