"""Queries and keys of a trained policy on the frames of its own episodes."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.experiments.environments import Environment
from robopolicy.policies.base import unflatten
from robopolicy.policies.policy import Policy
from robopolicy.training.rollout import Playing

Head = tuple[NDArray[Any], NDArray[Any]]

APART, EACH = 10, 8  # steps between two frames, and frames of an episode


def recorded_heads(trained: Policy, environment: Environment, *, frames: int, seed: int) -> list[Head]:
    """Queries and keys [L, D] of every head, on `frames` frames of episodes that the policy plays."""
    parameters = unflatten(trained.functions)(trained.parameters)
    act, attended = jax.jit(trained.functions.act), jax.jit(trained.functions.attended)
    result: list[Head] = []
    with closing(environment.showing(trained.functions.observation_shapes).make()) as env:
        playing, state, steps, recorded = Playing(env, seed), trained.init_state(), 0, 0
        while recorded < frames:
            observation = {n: playing.observation[n] for n in trained.functions.observation_shapes}
            if steps % APART == 0:
                heads = jax.device_get(attended(parameters, trained.features, observation, state))
                result += [(q, k) for head in heads for q, k in zip(head.q, head.k, strict=True)]
                recorded += 1
            action, state = act(parameters, trained.features, observation, state)
            _, episode = playing.step(np.asarray(action))
            steps += 1
            if episode is not None or (recorded % EACH == 0 and steps % APART == 0):
                seed += 1
                playing, state = Playing(env, seed), trained.init_state()
    return result
