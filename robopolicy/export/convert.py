"""The converter, run by `export_policy` as `python -m robopolicy.export.convert FOLDER OUT`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jax2onnx
import numpy as np
from jax import Array

from robopolicy.export.onnx import DESCRIPTION, FEATURES, PARAMETERS
from robopolicy.policies.base import split, unflatten, vector_size
from robopolicy.policies.catalogue import policy_of, restore

OPSET = 21


def _to_onnx(function: Any, inputs: list[Any], names: list[str]) -> Any:
    return jax2onnx.to_onnx(
        function,
        inputs=inputs,
        input_names=names,
        output_names=["action", "scores"],
        model_name="policy",
        opset=OPSET,
    )


def convert(folder: Path, out: Path) -> None:
    """Convert what `export_policy` put into `folder`."""
    config = restore(json.loads((folder / DESCRIPTION).read_text()))
    with np.load(folder / FEATURES, allow_pickle=False) as stored:
        policy, features = policy_of(config, dict(stored))
    names = list(policy.observation_shapes)
    shapes = list(policy.observation.values())

    def run(parameters: Any, frozen: Any, observation: tuple[Array, ...]) -> tuple[Array, Array]:
        seen = policy.inspect(parameters, frozen, dict(zip(names, observation, strict=True)))
        return seen["action"], seen["scores"]

    if (folder / PARAMETERS).exists():
        parameters = unflatten(policy)(jnp.asarray(np.load(folder / PARAMETERS, allow_pickle=False)))
        model = _to_onnx(lambda *observation: run(parameters, features, observation), shapes, names)
    else:
        vector = jax.ShapeDtypeStruct((vector_size(policy),), jnp.float32)
        model = _to_onnx(
            lambda vector, *observation: run(*split(policy, features, vector), observation),
            [vector, *shapes],
            ["parameters", *names],
        )
    out.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
