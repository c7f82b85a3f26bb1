"""Gradient descent on demonstrations: parts added up, spread over devices, undone where not finite."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from robopolicy.policies.vision_performer import Learner
from robopolicy.training.batches import Batch


class State(NamedTuple):
    """Parameters, their running mean, the optimiser's state, and how many steps changed them."""

    parameters: Any
    ema: Any
    optimiser: Any
    updates: Array


class Keys(NamedTuple):
    """The sources of chance in a run, each for one use."""

    parameters: Array
    features: Array
    steps: Array
    validation: Array

    @staticmethod
    def of(seed: int) -> Keys:
        """Those of a seed."""
        return Keys(*jax.random.split(jax.random.key(seed), len(Keys._fields)))


class Descent:
    """Compiled functions of a learner: a training step, the loss of a batch, its layers and its actions.

    A batch is spread over as many local devices as divide it; parameters are on all of them.
    """

    def __init__(
        self,
        learner: Learner,
        features: Any,
        optimiser: optax.GradientTransformation,
        *,
        keys: Keys,
        batch: int,
        accumulate: int,
        negatives: int,
        ema: float,
    ) -> None:
        """`batch` demonstrations a step, in `accumulate` parts; see `bc.BCConfig` for the others."""
        self._learner, self._optimiser = learner, optimiser
        self._accumulate, self._negatives, self._decay = accumulate, negatives, ema
        self._keys = keys
        devices = jax.local_devices()
        part = batch // accumulate
        count = max(n for n in range(1, len(devices) + 1) if part % n == 0)
        mesh = Mesh(np.array(devices[:count]), ("data",))
        self._everywhere = NamedSharding(mesh, PartitionSpec())
        self._spread = NamedSharding(mesh, PartitionSpec(None, "data"))
        self._features = jax.device_put(features, self._everywhere)
        self._step = jax.jit(self._stepped, donate_argnums=0)
        self._losses = jax.jit(self._part_loss)
        self._act = jax.jit(jax.vmap(learner.policy.act, in_axes=(None, None, 0)))
        self._layers = jax.jit(jax.vmap(learner.layers, in_axes=(None, None, 0)))
        self._gradient = jax.jit(jax.grad(self._part_loss))

    def begin(self, key: Array) -> State:
        """The state before the first step."""
        parameters = self._learner.policy.init(key)
        return State(
            parameters,
            jax.tree.map(jnp.copy, parameters),
            self._optimiser.init(parameters),
            jnp.zeros((), jnp.int32),
        )

    def placed(self, state: State) -> State:
        """The state where steps want it."""
        return State(*jax.device_put(tuple(state), self._everywhere))

    def step(self, state: State, batch: Batch, number: int) -> tuple[State, dict[str, Array]]:
        """The state after a step, and its `loss`, `gradient_norm` and `finite`; `state` is used up.

        Where loss, gradient or parameters are not finite, `finite` is false and the state is the one before.
        """
        parts = jax.tree.map(lambda a: a.reshape(self._accumulate, -1, *a.shape[1:]), batch)
        placed = jax.device_put(parts, self._spread)
        return self._step(state, self._features, placed, jax.random.fold_in(self._keys.steps, number))

    def loss(self, parameters: Any, batch: Batch) -> float:
        """Mean loss of a batch, with negatives that are always the same."""
        return float(self._losses(parameters, self._features, batch, self._keys.validation))

    def actions(self, parameters: Any, batch: Batch) -> Array:
        """Actions [B, A] of the policy."""
        return self._act(parameters, self._features, batch.observation)

    def complaint(self, parameters: Any, batch: Batch, number: int) -> str:
        """What is not finite when `parameters` meet `batch` in step `number`: a layer, or a gradient."""
        size = len(batch.action) // self._accumulate
        starts = range(0, len(batch.action), size)
        parts = [jax.tree.map(lambda a, at=at: a[at : at + size], batch) for at in starts]
        for part in parts:
            found = self._layers(parameters, self._features, part.observation)
            for name, array in found.items():
                bad = ~np.isfinite(np.asarray(array)).reshape(size, -1).all(axis=1)
                if bad.any():
                    return f"{name} is the first layer not to be finite, for {bad.sum()} of {size} frames"
        keys = jax.random.split(jax.random.fold_in(self._keys.steps, number), self._accumulate)
        for part, key in zip(parts, keys, strict=True):
            gradient = self._gradient(parameters, self._features, part, key)
            leaves, _ = jax.tree_util.tree_flatten_with_path(gradient)
            names = [
                jax.tree_util.keystr(path, simple=True, separator="/")
                for path, leaf in leaves
                if not np.isfinite(leaf).all()
            ]
            if names:
                return f"all layers are finite, but the gradient of {', '.join(names)} is not"
        return "all layers and gradients are finite, but their norm or the parameters after the step are not"

    def _part_loss(self, parameters: Any, features: Any, batch: Any, key: Array) -> Array:
        def one(observation: Any, action: Array, key: Array) -> Array:
            return self._learner.loss(parameters, features, observation, action, key, self._negatives)

        keys = jax.random.split(key, len(batch.action))
        return jnp.mean(jax.vmap(one)(batch.observation, batch.action, keys))

    def _stepped(
        self, state: State, features: Any, parts: Batch, key: Array
    ) -> tuple[State, dict[str, Array]]:
        slope = jax.value_and_grad(self._part_loss)

        def add(total: Any, given: tuple[Batch, Array]) -> tuple[Any, None]:
            part, part_key = given
            found = slope(state.parameters, features, part, part_key)
            return jax.tree.map(jnp.add, total, found), None

        keys = jax.random.split(key, self._accumulate)
        if self._accumulate == 1:
            loss, gradient = slope(state.parameters, features, jax.tree.map(lambda a: a[0], parts), keys[0])
        else:
            nothing = jnp.zeros(()), jax.tree.map(jnp.zeros_like, state.parameters)
            total, _ = jax.lax.scan(add, nothing, (parts, keys))
            loss, gradient = jax.tree.map(lambda x: x / self._accumulate, total)
        norm = optax.tree.norm(gradient)
        updates, optimiser = self._optimiser.update(gradient, state.optimiser, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        # At first the mean of few parameters, so that it does not remember where training began.
        decay = jnp.minimum(self._decay, (1.0 + state.updates) / (10.0 + state.updates))
        ema = optax.incremental_update(parameters, state.ema, 1.0 - decay)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm) & jnp.isfinite(optax.tree.norm(parameters))
        after = State(parameters, ema, optimiser, state.updates + 1)
        kept = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)
        return kept, {"loss": loss, "gradient_norm": norm, "finite": finite}
