"""A task that is a JAX program, as EvoJAX's own trainer takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from evojax.policy.base import PolicyNetwork, PolicyState
from evojax.task.base import TaskState, VectorizedTask
from flax import struct
from jax import Array

from robopolicy.policies.policy import Policy
from robopolicy.training.worlds import Worlds, repeated

DIVERGED = -1e6


@struct.dataclass
class WorldsState(TaskState):
    """Episodes in progress, [N] of each: one vector is in `obs`, all other observations are in `others`.

    EvoJAX stacks `obs` over the steps of an episode, so images in it would fill the memory.
    """

    obs: Array
    others: Mapping[str, Array]
    courses: Any
    worlds: Any


@struct.dataclass
class WorldsPolicyState(PolicyState):
    """Keys that EvoJAX gives [N, 2], and the policy's state in each of N episodes."""

    state: Any


class WorldsTask(VectorizedTask):
    """An EvoJAX `VectorizedTask` on the courses of some seeds; a key selects one of them.

    It works on one device alone: all environments share one clock, and EvoJAX's merge over devices fails.
    """

    def __init__(self, worlds: Worlds, seeds: Sequence[int], vector: str, *, test: bool = False) -> None:
        """`vector` names the observation in `obs`. `test` tells EvoJAX that scores are of a test."""
        self._worlds, self._courses, self._vector = worlds, worlds.courses(seeds), vector
        self._count = len(seeds)
        self.test, self.max_steps = test, worlds.last
        state, seen = jax.eval_shape(worlds.reset, self._courses)
        self._is_common = jax.tree.map(lambda leaf: leaf.ndim == 0, state)  # such as the clock
        self.obs_shape = seen[vector].shape[1:]
        self.act_shape = (worlds.actions,)
        # EvoJAX compiles neither by itself.
        self._reset, self._step = jax.jit(self._begun), jax.jit(self._stepped)

    def reset(self, key: Array) -> WorldsState:
        """Begin an episode for each key [N, 2]."""
        state: WorldsState = self._reset(key)
        return state

    def step(self, state: WorldsState, action: Array) -> tuple[WorldsState, Array, Array]:
        """State, rewards [N] and ends [N] after `action` [N, A].

        A reward that is not finite is `DIVERGED`, since EvoJAX would rank it best.
        """
        following: tuple[WorldsState, Array, Array] = self._step(state, action)
        return following

    def _begun(self, key: Array) -> WorldsState:
        chosen = jax.vmap(lambda one: jax.random.randint(one, (), 0, self._count))(key)
        courses = jax.tree.map(lambda leaf: leaf[chosen], self._courses)
        return self._state(courses, *self._worlds.reset(courses))

    def _stepped(self, state: WorldsState, action: Array) -> tuple[WorldsState, Array, Array]:
        before = jax.tree.map(lambda common, leaf: leaf[0] if common else leaf, self._is_common, state.worlds)
        following, seen, rewards, done = self._worlds.step(state.courses, before, action)
        rewards = jnp.where(jnp.isfinite(rewards), rewards, DIVERGED)
        return self._state(state.courses, following, seen), rewards, done.astype(jnp.float32)

    def _state(self, courses: Any, worlds: Any, seen: Mapping[str, Array]) -> WorldsState:
        vector = seen[self._vector]
        others = {name: value for name, value in seen.items() if name != self._vector}
        # EvoJAX reshapes every array of the state by its first axis.
        spread = jax.tree.map(
            lambda common, leaf: jnp.broadcast_to(leaf, len(vector)) if common else leaf,
            self._is_common,
            worlds,
        )
        return WorldsState(vector, others, courses, spread)


class WorldsNetwork(PolicyNetwork):
    """The functions of a `Policy` as an EvoJAX `PolicyNetwork` for a `WorldsTask` of the same `vector`."""

    def __init__(self, policy: Policy, vector: str) -> None:
        self.num_params = policy.parameters.size
        self._act, self._vector = jax.vmap(policy.flat_act), vector
        self._first_state = policy.init_state()

    def reset(self, states: WorldsState) -> WorldsPolicyState:
        """The policy's states in which the episodes of `states` begin."""
        return WorldsPolicyState(super().reset(states).keys, repeated(self._first_state, len(states.obs)))

    def get_actions(
        self, t_states: WorldsState, params: Array, p_states: WorldsPolicyState
    ) -> tuple[Array, WorldsPolicyState]:
        """The actions [N, A] of parameters [N, P], and the next states of the policy."""
        observation = {self._vector: t_states.obs, **t_states.others}
        actions, state = self._act(params, observation, p_states.state)
        return actions, p_states.replace(state=state)
