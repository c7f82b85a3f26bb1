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
    named_state,
    normaliser_size,
    parameter_count,
    unflatten,
    with_normaliser,
)
from robopolicy.policies.catalogue import policy_of, restore
from robopolicy.runtime.graph import NEXT, STARTS

OPSET = 21


def convert(folder: Path, out: Path) -> None:
    """Convert the policy that `onnx.py` wrote to `folder`, to the ONNX file `out`.

    Without parameters among its arrays, they become an input of the graph, and so do the statistics of
    observations if the policy normalises any.
    """
    # The converter imports a plugin for every library that it supports. Those of equinox, which no policy
    # uses, take three quarters of the whole time; without equinox it skips them, and logs each at length.
    sys.modules["equinox"] = None  # type: ignore[assignment]
    logging.getLogger("jax2onnx").setLevel(logging.CRITICAL)
    described = json.loads((folder / DESCRIPTION).read_text())
    with np.load(folder / ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    vector, units = arrays.pop(PARAMETERS, None), described["units"]
    policy, features = policy_of(restore(described["policy"]), arrays)
    inverse, vectors = unflatten(policy), dict[str, Any]()
    if vector is None:
        sizes = {"parameters": parameter_count(policy), "normaliser": normaliser_size(policy)}
        vectors = {name: jax.ShapeDtypeStruct((size,), jnp.float32) for name, size in sizes.items() if size}
    else:
        constant = inverse(jnp.asarray(vector))

    compute = policy.inspect if units is None else outputs(policy, Units(**units))
    names = [name for name in OUTPUTS if units is not None or name != "command"]
    first = policy.init_state(features)
    structure, starts = jax.tree.structure(first), {}
    for name, leaf in named_state(first).items():
        starts[name] = float(jnp.ravel(leaf)[0])
        if (leaf != starts[name]).any():
            raise ValueError(f"{name} begins with several numbers: a graph takes states of one alone")
    state = named_state(jax.eval_shape(policy.init_state, features))
    inputs = {**vectors, **policy.observation, **state}

    def run(*arrays: Array) -> tuple[Array, ...]:
        observation = dict(zip(inputs, arrays, strict=True))
        extra = {name: observation.pop(name) for name in vectors}
        before = jax.tree.unflatten(structure, [observation.pop(name) for name in state])
        frozen = with_normaliser(policy, features, extra.get("normaliser"))
        parameters = inverse(extra["parameters"]) if vector is None else constant
        results, after = compute(parameters, frozen, observation, before)
        return (*(results[name] for name in names), *jax.tree.leaves(after))

    model = jax2onnx.to_onnx(
        run,
        inputs=list(inputs.values()),
        input_names=list(inputs),
        output_names=[*names, *(NEXT + name for name in state)],
        model_name="policy",
        opset=OPSET,
    )
    # The converter loses track of some shapes, and calls them dynamic.
    for output, shaped in zip(model.graph.output, jax.eval_shape(run, *inputs.values()), strict=True):
        output.CopyFrom(onnx.helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, shaped.shape))
    if starts:
        onnx.helper.set_model_props(model, {STARTS: json.dumps(starts)})
    out.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
