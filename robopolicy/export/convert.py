"""The converter, run by `onnx.py` as `python -m robopolicy.export.convert FOLDER OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
import onnx
from jax import Array

from robopolicy.export.onnx import DESCRIPTION, FEATURES, PARAMETERS, UNITS
from robopolicy.export.outputs import OUTPUTS, Units, outputs
from robopolicy.policies.base import Policy, split, unflatten, vector_size
from robopolicy.policies.catalogue import policy_of, restore

OPSET = 21


def convert(folder: Path, out: Path) -> None:
    """Convert what `onnx.py` put into `folder`."""
    config = restore(json.loads((folder / DESCRIPTION).read_text()))
    with np.load(folder / FEATURES, allow_pickle=False) as stored:
        policy, features = policy_of(config, dict(stored))
    if (folder / UNITS).exists():
        units = Units(**json.loads((folder / UNITS).read_text()))
        model = _with_units(policy, _parameters(policy, folder), features, units)
    elif (folder / PARAMETERS).exists():
        model = _bare(policy, _parameters(policy, folder), features)
    else:
        model = _open(policy, features)
    out.write_bytes(model.SerializeToString())


def _parameters(policy: Policy, folder: Path) -> Any:
    return unflatten(policy)(jnp.asarray(np.load(folder / PARAMETERS, allow_pickle=False)))


def _with_units(policy: Policy, parameters: Any, features: Any, units: Units) -> Any:
    names, compute = list(policy.observation), outputs(policy, units)

    def run(*readings: Array) -> tuple[Array, ...]:
        made = compute(parameters, features, dict(zip(names, readings, strict=True)))
        return tuple(made[name] for name in OUTPUTS)

    return _to_onnx(run, list(policy.observation.values()), names, list(OUTPUTS))


def _bare(policy: Policy, parameters: Any, features: Any) -> Any:
    names = list(policy.observation)

    def run(*observation: Array) -> tuple[Array, Array]:
        return _seen(policy, parameters, features, names, observation)

    return _to_onnx(run, list(policy.observation.values()), names, ["action", "scores"])


def _open(policy: Policy, features: Any) -> Any:
    """With the parameters as an input."""
    names = list(policy.observation)
    vector = jax.ShapeDtypeStruct((vector_size(policy),), jnp.float32)

    def run(vector: Array, *observation: Array) -> tuple[Array, Array]:
        return _seen(policy, *split(policy, features, vector), names, observation)

    inputs = [vector, *policy.observation.values()]
    return _to_onnx(run, inputs, ["parameters", *names], ["action", "scores"])


def _seen(
    policy: Policy, parameters: Any, features: Any, names: list[str], observation: tuple[Array, ...]
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
