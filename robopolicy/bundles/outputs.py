"""The computation of a bundle's graph: from raw readings to commands in physical units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from robopolicy.policies.base import Observation, PolicyFunctions

OUTPUTS = ("command", "action", "scores")


class Units(NamedTuple):
    """Physical units of readings and commands.

    Attributes:
      clips: for some inputs the limits to which the graph clips readings, as training does.
      scale: [A], the command of an action of one.
    """

    clips: Mapping[str, tuple[float, float]]
    scale: tuple[float, ...]


def units_of(description: Mapping[str, Any]) -> Units:
    """The units in a task's description."""
    clips = {name: tuple(value["clip"]) for name, value in description["inputs"].items() if "clip" in value}
    return Units(clips, tuple(description["outputs"]["command"]["scale"]))


def outputs(
    policy: PolicyFunctions, units: Units
) -> Callable[[Any, Any, Observation, Any], tuple[dict[str, Array], Any]]:
    """(parameters, features, readings, state) -> `OUTPUTS` by name, next state; pure, and can be compiled.

    `command` [A] is in physical units, `action` [A] in [-1, 1], `scores` determine it.
    """
    scale = jnp.asarray(units.scale, jnp.float32)

    def compute(
        parameters: Any, features: Any, readings: Observation, state: Any
    ) -> tuple[dict[str, Array], Any]:
        clipped = {
            name: jnp.clip(array, *units.clips[name]) if name in units.clips else array
            for name, array in readings.items()
        }
        results, state = policy.inspect(parameters, features, clipped, state)
        action = jnp.clip(results["action"], -1.0, 1.0)
        return {"command": action * scale, "action": action, "scores": results["scores"]}, state

    return compute
