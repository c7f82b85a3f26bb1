"""How an action is learnt and chosen from an encoding: energies of (encoding, action), and a regression.

The energy heads are those of Implicit Behavioral Cloning (Florence et al., CoRL 2021), which HRF, Appendix
K.2, trains with: a small network joins encoding and action late, so that the image is encoded once for all
candidates; InfoNCE makes the demonstrated action stand out among uniform ones. What the texts call energy is
here a score, its negative: higher is better.

Actions are scaled to [-1, 1] here. What is drawn for a search is drawn once and kept with the features, so
that the same observation gives the same action. A search by sampling takes another way where rounding
differs, as it does between machines; the look along a line that is the default does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array

SPREAD, SHRINK = 0.33, 0.5  # of the search: its first standard deviation, and what a round multiplies it with
STEP, LAST_STEP, STEP_POWER = 0.1, 1e-5, 2.0  # of Langevin dynamics, from the first to the last
LARGEST_MOVE = 0.1  # of a candidate in one Langevin step
WINDOW = 2.0  # steps of the first look along a line, either way of the best, that the second one takes in
SHARPNESS = 100.0  # of the mean at the end of a look along a line: an inverse temperature
CHAIN = 25  # Langevin steps that make negatives in training
MOST = 2**16  # candidates at a time: beyond it memory, not the search, decides
MARGIN = 1.0  # what the largest slope of the score may be without a penalty


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
      draw: key -> what searches use for chance, a pytree; () where nothing is searched.
      loss: (module, encoding, action, key, negatives) -> [].
      choose: (module, draws, encoding) -> the action, and the scores that it was chosen by.
    """

    network: Callable[[nnx.Rngs], Any]
    draw: Callable[[Array], Any]
    loss: Callable[..., Array]
    choose: Callable[[Any, Any, Array], tuple[Array, Array]]


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
    found = jnp.sum((places[:, None] >= cumulative[None, :]).astype(jnp.int32), axis=1)
    return jnp.minimum(found, len(scores) - 1)


def _searched(score: Callable[[Array], Array], draws: Any, iterations: int) -> tuple[Array, Array]:
    """The best candidate [C] of a derivative-free search, and its score (Implicit BC, Algorithm 1).

    `draws` hold the first candidates [N, C], and for every round places [N] and normal numbers [N, C].
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

    return Head(lambda rngs: Score(config, rngs), draw, loss, choose)


class Scores(nnx.Module):
    """A `Score` for every dimension, which sees the dimensions before it; parameters on a leading axis."""

    def __init__(self, config: HeadConfig, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=config.actions)
        @nnx.vmap(in_axes=0, out_axes=0)
        def make(rngs: nnx.Rngs) -> Score:
            return Score(config, rngs)

        self.dimensions = make(rngs)


def _highest(score: Callable[[Array], Array], samples: int) -> tuple[Array, Array]:
    """Where in [-1, 1] a score of values [N] is highest, [], and how high: two looks at even places.

    Where neighbours are about as high, it is their mean by exp(SHARPNESS * score), so that rounding, which
    differs between machines, moves it as little as it moves the scores; a sampled search would take another
    way. The places of the second look stand among those of the first, whichever of them was best.
    """
    places = jnp.linspace(-1.0, 1.0, samples + 1)
    best = jnp.take(places, jnp.argmax(score(places)))
    near = jnp.clip(best + WINDOW * (2.0 / samples) * places, -1.0, 1.0)
    scores = score(near)
    highest = jnp.max(scores)
    weights = jnp.exp(SHARPNESS * (scores - highest))
    return jnp.sum(weights * near) / jnp.sum(weights), highest


def autoregressive(config: HeadConfig) -> Head:
    """A score for every dimension, given those before it: each is looked along for its highest, in turn."""
    earlier = jnp.tril(jnp.ones((config.actions, config.actions)), -1)
    here = jnp.eye(config.actions)

    def candidates_at(known: Array, place: Array, values: Array) -> Array:
        """Actions [N, A]: what is `known` of one, and each of values [N] in its place (a one in [A])."""
        return known + place * values[:, None]

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        others = jax.random.uniform(key, (config.actions, negatives), minval=-1.0, maxval=1.0)
        values = jnp.concatenate([action[:, None], others], axis=1)
        candidates = jax.vmap(candidates_at)(earlier * action, here, values)
        scores = jax.vmap(lambda score, c: score(encoding, c))(module.dimensions, candidates)
        return jnp.sum(jax.vmap(info_nce)(scores))

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        graph, parameters = nnx.split(module.dimensions)

        def dimension(known: Array, given: Any) -> tuple[Array, Array]:
            parameters, place = given
            score = nnx.merge(graph, parameters)
            value, highest = _highest(
                lambda c: score(encoding, candidates_at(known, place, c)), config.samples
            )
            return known + place * value, highest

        return jax.lax.scan(dimension, jnp.zeros(config.actions), (parameters, here))

    return Head(lambda rngs: Scores(config, rngs), lambda key: (), loss, choose)


def _step_sizes(steps: int) -> Array:
    """Polynomial decay from the first step to the last, [steps]."""
    left = 1.0 - jnp.arange(steps) / max(steps - 1, 1)
    return LAST_STEP + (STEP - LAST_STEP) * left**STEP_POWER


def _langevin(module: Any, encoding: Array, start: Array, normal: Array) -> Array:
    """Candidates [N, A] after a step up the score for each of normal [steps, N, A]."""

    def step(candidates: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
        size, noise = given
        move = 0.5 * module.slope(encoding, candidates) + noise
        moved = candidates + jnp.clip(size * move, -LARGEST_MOVE, LARGEST_MOVE)
        return jnp.clip(moved, -1.0, 1.0), None

    return jax.lax.scan(step, start, (_step_sizes(len(normal)), normal))[0]


def langevin(config: HeadConfig) -> Head:
    """One score for whole actions, climbed by Langevin dynamics; negatives come from the same climb."""

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

    return Head(lambda rngs: Score(config, rngs), draw, loss, choose)


class Regression(nnx.Module):
    """An encoding [E] to an action [A]."""

    def __init__(self, config: HeadConfig, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(config.encoding, config.hidden, rngs=rngs)
        self.deep = nnx.Linear(config.hidden, config.hidden, rngs=rngs)
        self.out = nnx.Linear(config.hidden, config.actions, rngs=rngs)

    def __call__(self, encoding: Array) -> Array:
        return self.out(jax.nn.relu(self.deep(jax.nn.relu(self.hidden(encoding[None])))))[0]


def squared_error(config: HeadConfig) -> Head:
    """The action itself, learnt by its squared error: the explicit baseline of the field."""

    def loss(module: Any, encoding: Array, action: Array, key: Array, negatives: int) -> Array:
        return jnp.mean((module(encoding) - action) ** 2)

    def choose(module: Any, draws: Any, encoding: Array) -> tuple[Array, Array]:
        action = module(encoding)
        return jnp.clip(action, -1.0, 1.0), action

    return Head(lambda rngs: Regression(config, rngs), lambda key: (), loss, choose)


HEADS: dict[str, Callable[[HeadConfig], Head]] = {
    "autoregressive": autoregressive,
    "derivative_free": derivative_free,
    "langevin": langevin,
    "squared_error": squared_error,
}


def head_of(name: str, config: HeadConfig) -> Head:
    """The head called `name` in `HEADS`."""
    return HEADS[name](config)
