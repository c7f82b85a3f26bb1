"""A policy with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.naming import shown
from robopolicy.policies.base import (
    KEY,
    PolicyFunctions,
    flatten,
    leaves_by_path,
    parameter_count,
    state_shape,
    unflatten,
    with_normaliser,
)
from robopolicy.policies.catalogue import KINDS, PolicyConfig, check_paths, functions_of, kind_of
from robopolicy.policies.fast_sines import compiled
from robopolicy.settings import check_array, check_count

Observed = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Policy:
    """A policy with its parameters. Raises ValueError for parameters or features that do not fit `config`.

    Attributes:
      config: its settings.
      parameters: flat, [P] float32.
      features: constants of its surroundings and random projections, which training does not change.
      name: for tables and pictures; `config.json` of a search that begins with it has it, too.
      run: config.json of its training run; empty without a run.
    """

    config: PolicyConfig
    parameters: NDArray[np.float32]
    features: Any
    name: str
    run: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Policy({self.name!r}, {self.config.label!r}, {self.parameters.size} parameters)"

    def __post_init__(self) -> None:
        constants = KINDS[kind_of(self.config)].constants
        if not isinstance(self.features, Mapping) or not {"draws", constants} <= self.features.keys():
            raise ValueError(f"features must hold 'draws' and {constants!r}, as `init_features` returns them")
        try:
            check_paths(jax.eval_shape(self.functions.init_features, KEY), leaves_by_path(self.features))
        except ValueError as error:
            raise ValueError(f"features: {error}") from error
        check_array("parameters", self.parameters, (parameter_count(self.functions),), "float32")
        if not isinstance(self.name, str):
            raise ValueError(f"name is {shown(self.name)}: it must be text")

    @classmethod
    def create(
        cls, config: PolicyConfig, constants: Mapping[str, Any], seed: int = 0, name: str = "untrained"
    ) -> Self:
        """An untrained policy.

        Args:
          config: its settings.
          constants: arrays of its surroundings by name: for an Implicit Attention Policy the level [rows,
            columns] (m) of each camera that has a reference, for a Vision-Performer the statistics of the
            data.
          seed: of its parameters and of its features, 0 to 2^32 - 1.
          name: for tables and pictures.

        Raises ValueError for settings of no policy, constants that do not fit them, or a seed out of range.
        """
        check_count("seed", seed, 0, 2**32 - 1)
        functions = functions_of(config, constants)
        start, draw = jax.random.split(jax.random.key(seed))
        parameters = np.asarray(flatten(functions.init(start)))
        return cls(config, parameters, functions.init_features(draw), name)

    @cached_property
    def functions(self) -> PolicyFunctions:
        """Its pure functions."""
        return functions_of(self.config, self.features[KINDS[kind_of(self.config)].constants])

    def __getstate__(self) -> dict[str, Any]:
        """Without functions, which cannot be pickled and are made again."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def flat_act(self) -> Callable[..., tuple[jax.Array, Any]]:
        """A pure function (parameters [P], observation, state, normaliser) -> action [A], next state.

        The normaliser [2K] is for a policy that normalises; without it, the statistics are its own.
        """
        return partial(self.flat_act_with, self.features)

    def flat_act_with(
        self, features: Any, vector: jax.Array, observation: Any, state: Any, normaliser: Any = None
    ) -> tuple[jax.Array, Any]:
        """`flat_act` with other features: a program that takes them as an argument fits every draw."""
        functions = self.functions
        frozen = with_normaliser(functions, features, normaliser)
        return functions.act(unflatten(functions)(vector), frozen, observation, state)

    def init_state(self) -> Any:
        """The state in which an episode begins: a pytree of arrays, `()` for a policy without state."""
        return self.functions.init_state(self.features)

    @property
    def has_state(self) -> bool:
        """Whether its actions depend on earlier observations, by a state that goes from step to step."""
        return bool(jax.tree.leaves(self._state_shape))

    def step(self, observation: Observed, state: Any) -> tuple[NDArray[np.float32], Any]:
        """The action [A] in [-1, 1] for one observation and a state, and the next state.

        An episode begins with the state of `init_state`. The first call compiles. Raises ValueError for an
        observation that lacks an array, or has one of another shape or dtype or with a number that is not
        finite, and for a state that is another policy's, or not finite.
        """
        arguments = self._tree, self.features, self._read(observation), self._checked(state)
        action, state = self._compiled_act(*arguments)
        return np.asarray(action), state

    def act(self, observation: Observed) -> NDArray[np.float32]:
        """The action [A] in [-1, 1] of a policy without state for one observation. The first call compiles.

        Raises ValueError for a policy with a state, and for an observation as `step`.
        """
        if self.has_state:
            raise ValueError(f"policy {self.name!r} has a state: step takes it and returns the next one")
        return self.step(observation, self.init_state())[0]

    def inspect(self, observation: Observed, state: Any = ()) -> dict[str, NDArray[Any]]:
        """The results of `PolicyFunctions.inspect` for one observation and a state. Raises as `step`."""
        arguments = self._tree, self.features, self._read(observation), self._checked(state)
        results, _ = self._compiled_inspect(*arguments)
        return {name: np.asarray(array) for name, array in results.items()}

    @cached_property
    def _tree(self) -> Any:
        return unflatten(self.functions)(self.parameters)

    @cached_property
    def _compiled_act(self) -> Any:
        return compiled(self.functions.act)

    @cached_property
    def _compiled_inspect(self) -> Any:
        return compiled(self.functions.inspect)

    @cached_property
    def _state_shape(self) -> Any:
        return state_shape(self.functions, self.features)

    def _checked(self, state: Any) -> Any:
        """`state`, whose arrays must be those of this policy's."""
        wanted = self._state_shape
        structure: Any = jax.tree.structure(state)
        if structure != jax.tree.structure(wanted):
            raise ValueError(f"state is no state of policy {self.name!r}: init_state returns the first one")
        for array, (path, leaf) in zip(jax.tree.leaves(state), leaves_by_path(wanted).items(), strict=True):
            name = f"state {path}".strip()
            check_array(name, array, leaf.shape, leaf.dtype)
            if not np.isfinite(array).all():
                raise ValueError(f"{name} holds a number that is not finite")
        return state

    def _read(self, observation: Observed) -> dict[str, NDArray[Any]]:
        """The arrays that the policy reads of an observation, which may hold more."""
        if not isinstance(observation, Mapping):
            raise ValueError(f"observation is {shown(observation)}: it must hold arrays by name")
        arrays: dict[str, Any] = {}
        for name, wanted in self.functions.observation.items():
            if name not in observation:
                raise ValueError(f"observation holds {sorted(map(str, observation))}: it lacks {name!r}")
            arrays[name] = observation[name]
            with suppress(ValueError):  # of nested lists of different lengths
                arrays[name] = np.asarray(arrays[name])
            check_array(name, arrays[name], wanted.shape, wanted.dtype)
            # It would stay in a state, and the error of a later step would be about that.
            if not np.isfinite(arrays[name]).all():
                raise ValueError(f"{name} holds a number that is not finite")
        return arrays
