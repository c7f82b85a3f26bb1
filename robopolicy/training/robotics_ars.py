"""The Augmented Random Search of the robotics line (Mania et al., 2018; Choromanski et al., 2018).

It differs from the plain one in its directions: they are orthogonal, so they cover the space with fewer
rollouts (Choromanski et al., "Structured evolution with compact architectures", ICML 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from robopolicy.training.strategy import Settings, Strategy


class State(NamedTuple):
    """The centre of the search [P], and the number of generations."""

    mean: Array
    generation: Array


def orthogonal_directions(key: Array, count: int, size: int) -> Array:
    """Directions [count, size] as long as normal vectors, and orthogonal within blocks of `size`."""
    blocks = -(-count // size)
    keys = jax.random.split(key, 2)
    normal = jax.random.normal(keys[0], (blocks, size, min(count, size)))
    # The signs make the decomposition unique, and with it the distribution uniform (Mezzadri, 2007).
    q, r = jnp.linalg.qr(normal)
    q = q * jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))[:, None, :]
    directions = q.transpose(0, 2, 1).reshape(-1, size)[:count]
    lengths = jnp.linalg.norm(jax.random.normal(keys[1], (count, size)), axis=1)
    return directions * lengths[:, None]


def robotics_ars(settings: Settings) -> Strategy:
    """mean + learning_rate / (b * std of the kept returns) * sum over the kept of (r+ - r-) direction.

    It keeps the b directions with the highest max(r+, r-), the `elite` share (Mania et al., Algorithm 2,
    V1-t).
    Its mean squared step does not depend on the scale of returns.
    """
    directions = settings.population // 2
    count = max(1, round(settings.elite * directions))

    def init(key: Array, mean: Array) -> State:
        return State(jnp.asarray(mean, jnp.float32), jnp.zeros((), jnp.int32))

    @jax.jit
    def ask(key: Array, state: State) -> tuple[Array, State]:
        steps = settings.sigma_at(state.generation) * orthogonal_directions(key, directions, state.mean.size)
        return jnp.concatenate([state.mean + steps, state.mean - steps]), state

    @jax.jit
    def tell(key: Array, population: Array, returns: Array, state: State) -> State:
        ahead, behind = jnp.split(returns, 2)
        _, best = jax.lax.top_k(jnp.maximum(ahead, behind), count)
        spread = jnp.std(jnp.concatenate([ahead[best], behind[best]]))
        sigma = settings.sigma_at(state.generation)
        steps = (population[:directions] - state.mean)[best] / sigma
        # Equal returns have no spread to divide by.
        step = (ahead - behind)[best] @ steps / (count * jnp.maximum(spread, 1e-8))
        mean = state.mean + settings.learning_rate_at(state.generation) * step
        return State(mean, state.generation + 1)

    return Strategy(init, ask, tell, lambda state: state.mean)
