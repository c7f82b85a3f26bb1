"""The converter, run by `onnx.py` as `python -m robopolicy.bundles.convert FOLDER OUT`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
import onnx
from jax import Array

from robopolicy.bundles.onnx import ARRAYS, DESCRIPTION, PARAMETERS
from robopolicy.bundles.outputs import OUTPUTS, Units, outputs
from robopolicy.policies.base import (
    PolicyFunctions,
    normaliser_size,
    parameter_count,
    unflatten,
    with_normaliser,
)
from robopolicy.policies.catalogue import policy_of, restore

OPSET = 21


def convert(folder: Path, out: Path) -> None:
    """Convert what `onnx.py` put into `folder`."""
    # The converter imports a plugin for every library that it knows. Those of equinox, which no policy uses,
    # compile for three quarters of the whole time; without equinox it skips them, and logs each at length.
    sys.modules["equinox"] = None  # type: ignore[assignment]
    logging.getLogger("jax2onnx").setLevel(logging.CRITICAL)
    described = json.loads((folder / DESCRIPTION).read_text())
    with np.load(folder / ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    vector = arrays.pop(PARAMETERS, None)
    policy, features = policy_of(restore(described["policy"]), arrays)
    if vector is None:
        model = _open(policy, features)
    else:
        parameters = unflatten(policy)(jnp.asarray(vector))
        units = described["units"]
        model = (
            _bare(policy, parameters, features)
            if units is None
            else _with_units(policy, parameters, features, Units(**units))
        )
    out.write_bytes(model.SerializeToString())


def _with_units(policy: PolicyFunctions, parameters: Any, features: Any, units: Units) -> Any:
    names, compute = list(policy.observation), outputs(policy, units)

    def run(*readings: Array) -> tuple[Array, ...]:
        made = compute(parameters, features, dict(zip(names, readings, strict=True)))
        return tuple(made[name] for name in OUTPUTS)

    return _to_onnx(run, list(policy.observation.values()), names, list(OUTPUTS))


def _bare(policy: PolicyFunctions, parameters: Any, features: Any) -> Any:
    names = list(policy.observation)

    def run(*observation: Array) -> tuple[Array, Array]:
        return _seen(policy, parameters, features, names, observation)

    return _to_onnx(run, list(policy.observation.values()), names, ["action", "scores"])


def _open(policy: PolicyFunctions, features: Any) -> Any:
    """With the parameters as an input, and statistics of observations as another one if it has any."""
    names, inverse = list(policy.observation), unflatten(policy)
    sizes = {"parameters": parameter_count(policy), "normaliser": normaliser_size(policy)}
    given = {name: jax.ShapeDtypeStruct((size,), jnp.float32) for name, size in sizes.items() if size}

    def run(*inputs: Array) -> tuple[Array, Array]:
        vectors = dict(zip(given, inputs, strict=False))
        frozen = with_normaliser(policy, features, vectors.get("normaliser"))
        return _seen(policy, inverse(vectors["parameters"]), frozen, names, inputs[len(given) :])

    inputs = [*given.values(), *policy.observation.values()]
    return _to_onnx(run, inputs, [*given, *names], ["action", "scores"])


def _seen(
    policy: PolicyFunctions, parameters: Any, features: Any, names: list[str], observation: tuple[Array, ...]
) -> tuple[Array, Array]:
    seen = policy.inspect(parameters, features, dict(zip(names, observation, strict=True)))
    return seen["action"], seen["scores"]


def _to_onnx(function: Any, inputs: list[Any], names: list[str], made: list[str]) -> Any:
    model = jax2onnx.to_onnx(
        function, inputs=inputs, input_names=names, output_names=made, model_name="policy", opset=OPSET
    )
    # The converter loses track of some shapes on the way, and calls them dynamic.
    for output, shaped in zip(model.graph.output, jax.eval_shape(function, *inputs), strict=True):
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, shaped.shape))
    return model


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
