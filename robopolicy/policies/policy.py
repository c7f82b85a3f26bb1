"""A policy with its parameters: what a run keeps, and what acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.policies.base import PolicyFunctions, flatten, parameter_count, unflatten
from robopolicy.policies.catalogue import KINDS, PolicyConfig, functions_of, kind_of

Observed = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy with its parameters.

    Attributes:
      config: its settings.
      parameters: flat, [P] float32.
      features: what training does not change: drawn projections, and constants of its surroundings.
      name: what people call it.
      run: config.json of the run that it comes from; empty where there is none.
    """

    config: PolicyConfig
    parameters: NDArray[np.float32]
    features: Any
    name: str
    run: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        size = parameter_count(self.functions)
        shape = np.shape(self.parameters)
        if shape != (size,):
            raise ValueError(f"parameters have shape {list(shape)}: they must have [{size}]")

    @classmethod
    def create(
        cls, config: PolicyConfig, constants: Mapping[str, Any], seed: int = 0, name: str = "untrained"
    ) -> Self:
        """An untrained policy.

        Args:
          config: its settings.
          constants: what it is given of its surroundings: for an Implicit Attention Policy the level of each
            camera that has a reference, for a Vision-Performer the statistics of the data.
          seed: of its parameters and of its features.
          name: what to call it.
        """
        functions = functions_of(config, constants)
        start, draw = jax.random.split(jax.random.key(seed))
        parameters = np.asarray(flatten(functions.init(start)))
        return cls(config, parameters, functions.init_features(draw), name)

    @cached_property
    def functions(self) -> PolicyFunctions:
        """Its pure functions."""
        return functions_of(self.config, self.features[KINDS[kind_of(self.config)].constants])

    def act(self, observation: Observed) -> NDArray[np.float32]:
        """The action [A] in [-1, 1] for one observation; raises ValueError for one that is not as it must be.

        The first call compiles.
        """
        return np.asarray(self._compiled_act(self._tree, self.features, self._read(observation)))

    def inspect(self, observation: Observed) -> dict[str, NDArray[Any]]:
        """The action and what led to it by name, see `PolicyFunctions.inspect`; raises what `act` raises."""
        found = self._compiled_inspect(self._tree, self.features, self._read(observation))
        return {name: np.asarray(array) for name, array in found.items()}

    @cached_property
    def _tree(self) -> Any:
        return unflatten(self.functions)(self.parameters)

    @cached_property
    def _compiled_act(self) -> Any:
        return jax.jit(self.functions.act)

    @cached_property
    def _compiled_inspect(self) -> Any:
        return jax.jit(self.functions.inspect)

    def _read(self, observation: Observed) -> dict[str, NDArray[Any]]:
        """What the policy reads of an observation, which may hold more."""
        read = {}
        for name, wanted in self.functions.observation.items():
            found = observation.get(name)
            if found is None:
                raise ValueError(f"observation holds {sorted(observation)}: it lacks {name!r}")
            given = np.asarray(found)
            if given.shape != wanted.shape or given.dtype != wanted.dtype:
                allowed = f"{wanted.dtype}{list(wanted.shape)}"
                raise ValueError(f"{name} is {given.dtype}{list(given.shape)}: it must be {allowed}")
            read[name] = given
        return read
