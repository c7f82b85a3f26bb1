"""An exported graph against the policy that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from robopolicy.policies.base import Policy
from robopolicy.runtime.graph import OnnxPolicy


class Parity(NamedTuple):
    """Largest absolute differences between two forms of a policy.

    Actions may be choices, which hide small differences until they flip; `scores_difference` is that of what
    they were chosen by. actions: those of the JAX policy, [N, A].
    """

    observations: int
    action_difference: float
    scores_difference: float
    actions: NDArray[np.float32]


def compare(
    policy: Policy,
    parameters: Any,
    features: Any,
    graph: OnnxPolicy,
    observations: Sequence[Mapping[str, NDArray[np.float32]]],
) -> Parity:
    """Run both on every observation; `parameters` is the pytree."""
    inspect = jax.jit(policy.inspect)
    differences: dict[str, float] = {"action": 0.0, "scores": 0.0}
    actions = []
    for observation in observations:
        ours, theirs = inspect(parameters, features, observation), graph.run(observation)
        actions.append(np.asarray(ours["action"]))
        for name, largest in differences.items():
            found = float(np.abs(np.asarray(ours[name]) - theirs[name]).max())
            differences[name] = max(largest, found)
    return Parity(len(observations), differences["action"], differences["scores"], np.stack(actions))
