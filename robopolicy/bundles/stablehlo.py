"""A bundle's policy as StableHLO, for programs that run it with XLA."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array, export

from robopolicy.bundles.outputs import OUTPUTS, Units, outputs
from robopolicy.policies.base import PolicyFunctions, state_shape

PLATFORMS = ("cpu", "cuda")


def stablehlo(policy: PolicyFunctions, parameters: Any, features: Any, units: Units) -> bytes:
    """The bytes for `jax.export.deserialize(...).call(*readings, *state)`, readings in the order of names.

    The call returns `OUTPUTS` in turn, then the arrays of the next state. JAX guarantees to read it for six
    months; ONNX stays readable.
    """
    names = sorted(policy.observation)
    compute = outputs(policy, units)
    leaves, structure = jax.tree.flatten(state_shape(policy, features))

    def run(*arrays: Array) -> tuple[Array, ...]:
        readings = dict(zip(names, arrays, strict=False))
        state = jax.tree.unflatten(structure, arrays[len(names) :])
        results, state = compute(parameters, features, readings, state)
        return (*(results[name] for name in OUTPUTS), *jax.tree.leaves(state))

    # The paths of source files would change the bytes.
    limit = "jax_traceback_in_locations_limit"
    before = jax.config.values[limit]
    jax.config.update(limit, 0)
    try:
        shapes = [*(policy.observation[name] for name in names), *leaves]
        return bytes(export.export(jax.jit(run), platforms=PLATFORMS)(*shapes).serialize())
    finally:
        jax.config.update(limit, before)
