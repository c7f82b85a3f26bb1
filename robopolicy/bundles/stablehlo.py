"""A bundle's policy as StableHLO, for programs that run it with XLA."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array, export

from robopolicy.bundles.outputs import OUTPUTS, Units, outputs
from robopolicy.policies.base import PolicyFunctions

PLATFORMS = ("cpu", "cuda")


def stablehlo(policy: PolicyFunctions, parameters: Any, features: Any, units: Units) -> bytes:
    """The bytes for `jax.export.deserialize(...).call(*readings)`, readings in the order of their names.

    The call returns `OUTPUTS` in turn. JAX guarantees to read it for six months; ONNX stays readable.
    """
    names = sorted(policy.observation)
    compute = outputs(policy, units)

    def run(*readings: Array) -> tuple[Array, ...]:
        results = compute(parameters, features, dict(zip(names, readings, strict=True)))
        return tuple(results[name] for name in OUTPUTS)

    # The paths of source files would change the bytes.
    limit = "jax_traceback_in_locations_limit"
    before = jax.config.values[limit]
    jax.config.update(limit, 0)
    try:
        shapes = [policy.observation[name] for name in names]
        return bytes(export.export(jax.jit(run), platforms=PLATFORMS)(*shapes).serialize())
    finally:
        jax.config.update(limit, before)
