"""The interface of an evolution strategy, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

State = Any


class Strategy(NamedTuple):
    """An evolution strategy as pure functions.

    Attributes:
      init: (key, mean [P]) -> state.
      ask: (key, state) -> (population [N, P], state).
      tell: (key, population [N, P], returns [N], state) -> state; larger returns are better, all finite.
      mean: state -> the centre of the search [P]; the result of a run without `average`.
    """

    init: Callable[[Array, Array], State]
    ask: Callable[[Array, State], tuple[Array, State]]
    tell: Callable[[Array, Array, Array, State], State]
    mean: Callable[[State], Array]


class Settings(NamedTuple):
    """The settings of all strategies; each uses some of them.

    Attributes:
      population: candidates per generation.
      sigma: initial standard deviation of a candidate around the mean.
      learning_rate: initial step size of the strategies that follow a gradient.
      decay: factor of both per generation, for strategies that do not adapt them.
      elite: share of the directions that a random search (ARS) learns from.
      shaping: name in `strategies.SHAPINGS`, or "default" for the choice of the strategy's authors.
      weight_decay: cost of a candidate's mean squared parameter, in units of return.
    """

    population: int
    sigma: float
    learning_rate: float
    decay: float = 1.0
    elite: float = 0.5
    shaping: str = "default"
    weight_decay: float = 0.0

    def sigma_at(self, generation: Any) -> Any:
        """Sigma after so many generations."""
        return self.sigma * self.decay**generation

    def learning_rate_at(self, generation: Any) -> Any:
        """Learning rate after so many generations."""
        return self.learning_rate * self.decay**generation
