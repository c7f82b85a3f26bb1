"""Heads, which learn and choose an action from an encoding: energies of (encoding, action), and a regression.

The energy heads are those of Implicit Behavioral Cloning (Florence et al., CoRL 2021), whose loss HRF has in
Appendix K.2: a small network joins encoding and action late, so that the image is encoded once for all
candidates; InfoNCE raises the demonstrated action above others. A score here is a negative energy:
higher is better.

Actions are scaled to [-1, 1] here. The random numbers of a search are drawn once, as features, so the same
observation gives the same action on one machine. Rounding, which differs between machines, can change the
result of a search by sampling; it hardly changes that of `autoregressive`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

SPREAD, SHRINK = 0.33, 0.5  # of the search: its first standard deviation, and the factor of each round
STEP, LAST_STEP, STEP_POWER = 0.1, 1e-5, 2.0  # of Langevin dynamics, from the first to the last
LARGEST_MOVE = 0.1  # of a candidate in one Langevin step
WINDOW = 2.0  # half-width of the second look along a line, in steps of the first
SHARPNESS = 100.0  # of the mean at the end of a look along a line: an inverse temperature
CHAIN = 25  # Langevin steps that make negatives in training
MOST = 2**16  # candidates, limited by memory
MARGIN = 1.0  # largest slope of the score without a penalty


class HeadConfig(NamedTuple):
    """Widths of encoding [E], action [A] and hidden layers; candidates and rounds of a search."""

    encoding: int
    actions: int
    hidden: int
    samples: int
    iterations: int


class Head(NamedTuple):
    """A way to choose actions; encodings are [E], actions [A] in [-1, 1], for one observation.

    Attributes:
      network: rngs -> module.
      draw: key -> random numbers of searches, a pytree; () without a search.
      loss: (module, encoding, action, key, negatives) -> [].
      choose: (module, draws, encoding) -> the action, and the scores that determine it.
    """

    network: Callable[[nnx.Rngs], Any]
    loss: Callable[..., Array]
    choose: Callable[[Any, Any, Array], tuple[Array, Array]]
    draw: Callable[[Array], Any] = lambda key: ()


class Score(nnx.Module):
    """Scores [N] of candidates [N, A] given an encoding [E]."""

    def __init__(self, config: HeadConfig, rngs: nnx.Rngs) -> None:
        self.encoding = nnx.Linear(config.encoding, config.hidden, rngs=rngs)
        self.action = nnx.Linear(config.actions, config.hidden, use_bias=False, rngs=rngs)
        self.hidden = nnx.Linear(config.hidden, config.hidden, rngs=rngs)
        self.out = nnx.Linear(config.hidden, 1, use_bias=False, rngs=rngs)

    def __call__(self, encoding: Array, candidates: Array) -> Array:
        return self.out(self._layers(encoding, candidates)[1])[:, 0]

    def slope(self, encoding: Array, candidates: Array) -> Array:
        """The derivative of each score by its candidate, [N, A]."""
        first, second = self._layers(encoding, candidates)
        back = jnp.where(second > 0, self.out.kernel[:, 0], 0.0) @ self.hidden.kernel[...].T
        return jnp.where(first > 0, back, 0.0) @ self.action.kernel[...].T

    def _layers(self, encoding: Array, candidates: Array) -> tuple[Array, Array]:
        first = jax.nn.relu(self.encoding(encoding[None]) + self.action(candidates))
        return first, jax.nn.relu(self.hidden(first))


def info_nce(scores: Array) -> Array:
    """InfoNCE of scores [N], the positive first: minus the log of its share (HRF, Appendix K.2)."""
    return jax.nn.logsumexp(scores) - scores[0]


def _resampled(scores: Array, places: Array) -> Array:
    """Indices [N] of candidates drawn in proportion to exp(scores) [N]; places [N] are uniform in [0, 1)."""
    cumulative = jnp.cumsum(jax.nn.softmax(scores))
    indices = jnp.sum((places[:, None] >= cumulative[None, :]).astype(jnp.int32), axis=1)
    return jnp.minimum(indices, len(scores) - 1)


def _searched(score: Callable[[Array], Array], draws: Any, iterations: int) -> tuple[Array, Array]:
    """The best candidate [C] of a derivative-free search, and its score (Implicit BC, Algorithm 1).

    `draws` holds the first candidates [N, C], and for every round places [N] and normal numbers [N, C].
    """
    candidates, spread = draws["start"], SPREAD
    scores = score(candidates)
    for round_ in range(iterations):
        chosen = jnp.take(candidates, _resampled(scores, draws["places"][round_]), axis=0)
        candidates = jnp.clip(chosen + spread * draws["normal"][round_], -1.0, 1.0)
        scores, spread = score(candidates), spread * SHRINK
    best = jnp.argmax(scores)
    return candidates[best], scores[best]


def derivative_free(config: HeadConfig) -> Head:
    """One score for whole actions, searched by sampling; beyond five dimensions it needs many samples."""

    def draw(key: Array) -> Any:
        start, places, normal = jax.random.split(key, 3)
        samples, rounds, width = config.samples, config.iterations, config.actions
        return {
            "start": jax.random.uniform(start, (samples, width), minval=-1.0, maxval=1.0),
            "places": jax.random.uniform(places, (rounds, samples)),
            "normal": jax.random.normal(normal, (rounds, samples, width)),
        }

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        others = jax.random.uniform(key, (negatives, config.actions), minval=-1.0, maxval=1.0)
        return info_nce(module(encoding, jnp.concatenate([action[None], others])))

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        action, score = _searched(lambda c: module(encoding, c), draws, config.iterations)
        return action, score[None]

    return Head(lambda rngs: Score(config, rngs), loss, choose, draw)


class Scores(nnx.Module):
    """A `Score` for every dimension, which reads the dimensions before it; parameters on a leading axis."""

    def __init__(self, config: HeadConfig, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=config.actions)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs: nnx.Rngs) -> Score:
            return Score(config, rngs)

        self.dimensions = make(rngs)


def _highest(score: Callable[[Array], Array], samples: int) -> tuple[Array, Array]:
    """The value in [-1, 1] with the highest score, [], and the highest score seen: two looks at even places.

    The value is a mean weighted by exp(SHARPNESS * score), so that rounding, which differs between machines,
    moves it as little as it moves the scores.
    """
    places = jnp.linspace(-1.0, 1.0, samples + 1)
    best = jnp.take(places, jnp.argmax(score(places)))
    near = jnp.clip(best + WINDOW * (2.0 / samples) * places, -1.0, 1.0)
    scores = score(near)
    highest = jnp.max(scores)
    weights = jnp.exp(SHARPNESS * (scores - highest))
    return jnp.sum(weights * near) / jnp.sum(weights), highest


def autoregressive(config: HeadConfig) -> Head:
    """A score for every dimension, given those before it: each in turn takes its value of highest score."""
    earlier = jnp.tril(jnp.ones((config.actions, config.actions)), -1)
    here = jnp.eye(config.actions)

    def candidates_at(before: Array, place: Array, values: Array) -> Array:
        """Actions [N, A]: the entries `before` a place, and each of values [N] at `place` (one-hot [A])."""
        return before + place * values[:, None]

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        others = jax.random.uniform(key, (config.actions, negatives), minval=-1.0, maxval=1.0)
        values = jnp.concatenate([action[:, None], others], axis=1)
        candidates = jax.vmap(candidates_at)(earlier * action, here, values)
        scores = jax.vmap(lambda score, c: score(encoding, c))(module.dimensions, candidates)
        return jnp.sum(jax.vmap(info_nce)(scores))

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        graph, parameters = nnx.split(module.dimensions)

        def dimension(before: Array, row: Any) -> tuple[Array, Array]:
            parameters, place = row
            score = nnx.merge(graph, parameters)
            value, highest = _highest(
                lambda c: score(encoding, candidates_at(before, place, c)), config.samples
            )
            return before + place * value, highest

        return jax.lax.scan(dimension, jnp.zeros(config.actions), (parameters, here))

    return Head(lambda rngs: Scores(config, rngs), loss, choose)


def _langevin(module: Any, encoding: Array, start: Array, normal: Array) -> Array:
    """Candidates [N, A] after a step up the score for each of normal [steps, N, A].

    The size of steps decays as a polynomial from the first to the last.
    """

    def step(candidates: Array, row: tuple[Array, Array]) -> tuple[Array, None]:
        size, noise = row
        move = 0.5 * module.slope(encoding, candidates) + noise
        moved = candidates + jnp.clip(size * move, -LARGEST_MOVE, LARGEST_MOVE)
        return jnp.clip(moved, -1.0, 1.0), None

    left = 1.0 - jnp.arange(len(normal)) / max(len(normal) - 1, 1)
    sizes = LAST_STEP + (STEP - LAST_STEP) * left**STEP_POWER
    return jax.lax.scan(step, start, (sizes, normal))[0]


def langevin(config: HeadConfig) -> Head:
    """One score for whole actions, climbed by Langevin dynamics, as for negatives in training."""

    def draw(key: Array) -> Any:
        start, normal = jax.random.split(key)
        shape = (config.samples, config.actions)
        return {
            "start": jax.random.uniform(start, shape, minval=-1.0, maxval=1.0),
            "normal": jax.random.normal(normal, (config.iterations, *shape)),
        }

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        start, normal = jax.random.split(key)
        shape = (negatives, config.actions)
        others = jax.lax.stop_gradient(
            _langevin(
                module,
                encoding,
                jax.random.uniform(start, shape, minval=-1.0, maxval=1.0),
                jax.random.normal(normal, (CHAIN, *shape)),
            )
        )
        candidates = jnp.concatenate([action[None], others])
        slopes = jnp.abs(module.slope(encoding, candidates))
        steep = jnp.maximum(jnp.max(slopes, axis=1) - MARGIN, 0.0)
        return info_nce(module(encoding, candidates)) + jnp.mean(steep**2)

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        candidates = _langevin(module, encoding, draws["start"], draws["normal"])
        scores = module(encoding, candidates)
        best = jnp.argmax(scores)
        return candidates[best], scores[best][None]

    return Head(lambda rngs: Score(config, rngs), loss, choose, draw)


class Regression(nnx.Module):
    """An encoding [E] to an action [A]."""

    def __init__(self, config: HeadConfig, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(config.encoding, config.hidden, rngs=rngs)
        self.deep = nnx.Linear(config.hidden, config.hidden, rngs=rngs)
        self.out = nnx.Linear(config.hidden, config.actions, rngs=rngs)

    def __call__(self, encoding: Array) -> Array:
        return self.out(jax.nn.relu(self.deep(jax.nn.relu(self.hidden(encoding[None])))))[0]


def squared_error(config: HeadConfig) -> Head:
    """The action itself, learned by its squared error: the explicit baseline of the field."""

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        return jnp.mean((module(encoding) - action) ** 2)

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        action = module(encoding)
        return jnp.clip(action, -1.0, 1.0), action

    return Head(lambda rngs: Regression(config, rngs), loss, choose)


HEADS: dict[str, Callable[[HeadConfig], Head]] = {
    "autoregressive": autoregressive,
    "derivative_free": derivative_free,
    "langevin": langevin,
    "squared_error": squared_error,
}
