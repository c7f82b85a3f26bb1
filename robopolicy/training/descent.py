"""Gradient descent on demonstrations (spread over devices, undone if not finite), and its validation."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpy.typing import NDArray

from robopolicy.attention import canonical
from robopolicy.policies.base import exact
from robopolicy.policies.catalogue import by_path
from robopolicy.policies.fast_sines import with_fast_sines
from robopolicy.policies.patches import stacked
from robopolicy.policies.vision_performer import Learner
from robopolicy.training.batches import ONE_STEP, Batch, Reach
from robopolicy.training.capacity import cores
from robopolicy.training.frames import Frames
from robopolicy.training.metrics import VALIDATION_LOSS, Record

MOST_FRAMES = 256  # for a validation loss
MOST_ACTIONS = 64  # of them, for the error of actions
# On a CPU, YNNPACK computes products and no sums: where few numbers are summed, XLA's own loops are faster.
# Not so for the long rows of exact softmax: without loops, a step on 2,500 tokens takes a quarter less time.
YNNPACK = "LIBRARY_FUSION_TYPE_DOT,LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"
LOOPED_SUMS = {"xla_cpu_experimental_ynn_fusion_type": YNNPACK}
TOKENS_AT_ONCE = 800  # on a CPU, at least
THREADS = 2  # of a step on a CPU; in XLA alone, two cores are busy for four fifths of the time


class State(NamedTuple):
    """Parameters, their running mean, the optimiser's state, and the number of steps that changed them."""

    parameters: Any
    ema: Any
    optimiser: Any
    updates: Array


class Ready(NamedTuple):
    """A batch, and its shares on the devices of a step, one for each thread: [parts, frames, ...]."""

    batch: Batch
    shares: tuple[Batch, ...]


class Keys(NamedTuple):
    """The random keys of a run, each for one use."""

    parameters: Array
    features: Array
    steps: Array
    validation: Array

    @staticmethod
    def of(seed: int) -> Keys:
        """The keys of a seed."""
        return Keys(*jax.random.split(jax.random.key(seed), len(Keys._fields)))


class Descent:
    """Compiled functions of a learner: a training step, the loss of a batch, its layers and its actions.

    Each of the `accumulate` parts of a batch is spread over as many local devices as divide it; all of them
    hold the parameters. A CPU divides the parts further. On one CPU of several cores, two threads each sum
    the gradients of half of these parts, if their number is even. `close` ends the threads.
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
        """`batch` demonstrations per step, in `accumulate` parts; see `bc.BCConfig` for the others."""
        self._learner, self._optimiser, self._keys = learner, optimiser, keys
        self._accumulate, self._negatives, self._decay = accumulate, negatives, ema
        devices = jax.local_devices()
        part = batch // accumulate
        count = max(n for n in range(1, len(devices) + 1) if part % n == 0)
        on_cpu = devices[0].platform == "cpu"
        parts = batch // (_at_once(part, count, learner.config.tokens) if on_cpu else part)
        # Threads that run a program on the same devices could wait for each other without end.
        self._threads = math.gcd(parts, min(THREADS, cores())) if on_cpu and count == 1 else 1
        self._parts = parts // self._threads
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="gradients")
        self._compiled: Any = None
        mesh = Mesh(np.array(devices[:count]), ("data",))
        self._everywhere = NamedSharding(mesh, PartitionSpec())
        self._spread = NamedSharding(mesh, PartitionSpec(None, "data"))
        self._features = jax.device_put(features, self._everywhere)
        quick = with_fast_sines if on_cpu else lambda function: function
        self._slope = quick(exact(jax.value_and_grad(self._loss)))
        attention = learner.config.attention
        is_exact = learner.config.attends and canonical(attention) == "softmax"
        options = _known(LOOPED_SUMS) if on_cpu and not is_exact else None
        self._sum = jax.jit(self._summed, compiler_options=options)
        self._step = jax.jit(self._stepped, donate_argnums=0, compiler_options=options)
        self._losses = jax.jit(quick(exact(self._loss)))
        self._chosen = jax.jit(quick(exact(jax.vmap(learner.chosen, in_axes=(None, None, 0)))))
        self._layers = jax.jit(exact(jax.vmap(learner.layers, in_axes=(None, None, 0))))
        self._gradient = jax.jit(exact(jax.grad(self._loss)))

    def begin(self, key: Array) -> State:
        """The state before the first step, its parameters drawn."""
        return self.begin_from(self._learner.policy.init(key))

    def begin_from(self, parameters: Any) -> State:
        """The state before the first step, from these parameters."""
        ema = jax.tree.map(jnp.copy, parameters)
        return State(parameters, ema, self._optimiser.init(parameters), jnp.zeros((), jnp.int32))

    def placed(self, state: State) -> State:
        """The state on the devices of `step`."""
        return State(*jax.device_put(tuple(state), self._everywhere))

    def ready(self, batch: Batch) -> Ready:
        """A batch for `step`, of the constructor's size. Threads can do this while a step is computed."""
        patch = self._learner.config.patch
        cut = batch._replace(images={name: stacked(a, patch) for name, a in batch.images.items()})
        shares = jax.tree.map(lambda a: a.reshape(self._threads, self._parts, -1, *a.shape[1:]), cut)
        each = (jax.tree.map(lambda a, at=at: a[at], shares) for at in range(self._threads))
        return Ready(batch, tuple(jax.device_put(share, self._spread) for share in each))

    def step(self, state: State, ready: Ready, number: int) -> tuple[State, dict[str, Array]]:
        """The state after a step, and its `loss`, `gradient_norm` and `finite`; `state` becomes unusable.

        If loss, gradient or parameters are not finite, `finite` is false and the state is the one before.
        """

        first, *others = (
            (state.parameters, self._features, share, np.uint32(number), np.uint32(thread))
            for thread, share in enumerate(ready.shares)
        )
        if not others:
            return self._step(state, (self._sum(*first),))
        if self._compiled is None:  # here, since settings such as `jax.default_device` are those of a thread
            self._compiled = self._sum.lower(*first).compile()
        return self._step(state, tuple(self._pool.map(lambda call: self._compiled(*call), [first, *others])))

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def loss(self, parameters: Any, batch: Batch) -> float:
        """Mean loss of a batch, with the same negatives in every call."""
        keys = jax.random.split(self._keys.validation, len(batch.action))
        return float(self._losses(parameters, self._features, batch, keys))

    def actions(self, parameters: Any, batch: Batch) -> Array:
        """The policy's actions, of the shape of the batch's."""
        return self._chosen(parameters, self._features, batch.observation).reshape(batch.action.shape)

    def complaint(self, parameters: Any, batch: Batch, number: int) -> str:
        """The first layer or gradient of step `number` that is not finite, in words."""
        size = len(batch.action) // self._accumulate
        starts = range(0, len(batch.action), size)
        parts = [jax.tree.map(lambda a, at=at: a[at : at + size], batch) for at in starts]
        for part in parts:
            for name, array in self._layers(parameters, self._features, part.observation).items():
                bad = ~np.isfinite(np.asarray(array)).reshape(size, -1).all(axis=1)
                if bad.any():
                    return f"{name} is the first layer not to be finite, for {bad.sum()} of {size} frames"
        keys = self._frame_keys(jax.random.fold_in(self._keys.steps, number), len(batch.action))
        for part, each in zip(parts, keys.reshape(self._accumulate, -1), strict=True):
            gradient = by_path(self._gradient(parameters, self._features, part, each))
            names = [path for path, array in gradient.items() if not np.isfinite(array).all()]
            if names:
                return f"all layers are finite, but the gradient of {', '.join(names)} is not"
        return "all layers and gradients are finite, but their norm or the parameters after the step are not"

    def _frame_keys(self, key: Array, count: int) -> Array:
        """The key of every frame of a batch [B]. It depends on `accumulate`, as in every version so far."""
        size = count // self._accumulate
        return jax.vmap(lambda k: jax.random.split(k, size))(jax.random.split(key, self._accumulate)).ravel()

    def _loss(self, parameters: Any, features: Any, batch: Any, keys: Array) -> Array:
        def one(observation: Any, action: Array, key: Array) -> Array:
            return self._learner.loss(parameters, features, observation, action, key, self._negatives)

        return jnp.mean(jax.vmap(one)(batch.observation, batch.action, keys))

    def _summed(
        self, parameters: Any, features: Any, share: Batch, number: Array, thread: Array
    ) -> tuple[Array, Any]:
        """Loss and gradient of step `number`, each the sum over the parts of a thread's share."""

        def add(total: Any, part: tuple[Batch, Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, self._slope(parameters, features, *part)), None

        count = self._threads * share.action.shape[0] * share.action.shape[1]
        keys = self._frame_keys(jax.random.fold_in(self._keys.steps, number), count)
        own = keys.reshape(self._threads, self._parts, -1)[thread]
        if self._parts == 1:
            return self._slope(parameters, features, jax.tree.map(lambda a: a[0], share), own[0])
        zero = jnp.zeros(()), jax.tree.map(jnp.zeros_like, parameters)
        return jax.lax.scan(add, zero, (share, own))[0]

    def _stepped(self, state: State, sums: tuple[tuple[Array, Any], ...]) -> tuple[State, dict[str, Array]]:
        count = self._threads * self._parts
        loss, gradient = jax.tree.map(lambda *x: sum(x) / count, *sums)
        norm = optax.tree.norm(gradient)
        updates, optimiser = self._optimiser.update(gradient, state.optimiser, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        # At first the mean of few parameters, so that it soon forgets the initial ones.
        decay = jnp.minimum(self._decay, (1.0 + state.updates) / (10.0 + state.updates))
        ema = optax.incremental_update(parameters, state.ema, 1.0 - decay)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm) & jnp.isfinite(optax.tree.norm(parameters))
        after = State(parameters, ema, optimiser, state.updates + 1)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, state)
        return state, {"loss": loss, "gradient_norm": norm, "finite": finite}


def _at_once(part: int, devices: int, tokens: int) -> int:
    """Frames whose gradient a CPU computes at a time: few, so that their layers stay in its cache.

    They divide `part`, and the devices divide them. One alone would be slower: XLA then has other products.
    """
    least = max(2, -(-TOKENS_AT_ONCE // tokens))
    fitting = (size for size in range(least, part) if part % size == 0 and size % devices == 0)
    return next(fitting, part)


def _known(options: dict[str, Any]) -> dict[str, Any] | None:
    """Options of the compiler, None if this version of XLA does not have them."""
    try:
        jax.jit(jnp.negative, compiler_options=options).lower(1.0).compile()
    except jax.errors.JaxRuntimeError:
        return None
    return options


class HeldOut:
    """Validation frames in batches, each spread over all validation episodes."""

    def __init__(self, frames: Frames, indices: NDArray[np.intp], size: int, reach: Reach = ONE_STEP) -> None:
        """Batches of `size` from the frames of `indices`."""
        self._frames, self._reach = frames, reach
        count = min(len(indices), MOST_FRAMES)
        parts = max(count // size, 1) if count else 0
        count = min(parts * size, count)
        chosen = indices[np.linspace(0, len(indices) - 1, count).astype(int)] if count else indices
        self._parts = [chosen[first::parts] for first in range(parts)]

    def record(self, descent: Descent, parameters: Any) -> Record:
        """Mean loss and mean absolute error of actions by name, without values that are not finite."""
        losses, errors, actions = [], [], 0
        for part in self._parts:
            batch = Batch.read(self._frames, part, self._reach)
            losses.append(descent.loss(parameters, batch))
            if actions < MOST_ACTIONS:
                chosen = np.asarray(descent.actions(parameters, batch))
                errors.append(float(np.abs(chosen - batch.action).mean()))
                actions += len(part)
        series = {VALIDATION_LOSS: losses, "validation/action_error": errors}
        means = {name: float(np.mean(values)) for name, values in series.items() if values}
        return {name: mean for name, mean in means.items() if np.isfinite(mean)}
