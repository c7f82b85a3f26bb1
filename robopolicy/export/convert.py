"""The converter, run by `export_policy` as `python -m robopolicy.export.convert FOLDER OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
from jax import Array

from robopolicy.export.onnx import DESCRIPTION, FEATURES, PARAMETERS
from robopolicy.policies.base import flatten, unflatten
from robopolicy.policies.catalogue import policy_of, restore

OPSET = 21


def convert(folder: Path, out: Path) -> None:
    """Convert what `export_policy` put into `folder`."""
    config = restore(json.loads((folder / DESCRIPTION).read_text()))
    with np.load(folder / FEATURES, allow_pickle=False) as stored:
        policy, features = policy_of(config, dict(stored))
    inverse = unflatten(policy)
    names = list(policy.observation_shapes)

    def run(parameters: Array, *observation: Array) -> tuple[Array, Array]:
        seen = policy.inspect(inverse(parameters), features, dict(zip(names, observation, strict=True)))
        return seen["action"], seen["scores"]

    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in policy.observation_shapes.values()]
    if (folder / PARAMETERS).exists():
        parameters = jnp.asarray(np.load(folder / PARAMETERS, allow_pickle=False))
        model = jax2onnx.to_onnx(
            lambda *observation: run(parameters, *observation),
            inputs=shapes,
            input_names=names,
            output_names=["action", "scores"],
            model_name="policy",
            opset=OPSET,
        )
    else:
        size = flatten(policy.init(jax.random.key(0))).size
        model = jax2onnx.to_onnx(
            run,
            inputs=[jax.ShapeDtypeStruct((size,), jnp.float32), *shapes],
            input_names=["parameters", *names],
            output_names=["action", "scores"],
            model_name="policy",
            opset=OPSET,
        )
    out.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
