"""An exported graph, as rollout workers and bundles run it. numpy and onnxruntime, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Observation = Mapping[str, NDArray[Any]]

DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}


class OnnxPolicy:
    """An ONNX graph of `robopolicy export`, on one thread.

    A graph whose parameters are not baked in takes them from `parameters` [P], which may be set anew
    between two calls.
    """

    def __init__(self, model: Path | bytes, parameters: NDArray[np.float32] | None = None) -> None:
        """`model`: the file, or its bytes. Raises FileNotFoundError, or ValueError if it is no such graph."""
        if isinstance(model, Path):
            if not model.is_file():
                raise FileNotFoundError(f"no policy at {str(model)!r}")
            model = model.read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what is raised says enough
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's errors share no narrower base
            raise ValueError(f"not an ONNX graph that can be run: {str(error).splitlines()[0]}") from error
        self.shapes = {node.name: tuple(node.shape) for node in self._session.get_inputs()}
        self.dtypes = {n.name: DTYPES.get(n.type, n.type) for n in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        self.output_shapes = {node.name: tuple(node.shape) for node in outputs}
        self.output_dtypes = {node.name: DTYPES.get(node.type, node.type) for node in outputs}
        self._outputs = list(self.output_shapes)
        if "action" not in self._outputs:
            raise ValueError(f"the graph gives {', '.join(self._outputs)}: a policy gives 'action'")
        self.parameters = parameters
        if "parameters" in self.shapes and parameters is None:
            raise ValueError(
                f"parameters are not in this graph: give a vector of {self.shapes['parameters']}"
            )

    def __call__(self, observation: Observation) -> NDArray[np.float32]:
        """The action [A] for one observation; raises ValueError for one that the graph was not made for."""
        return self.run(observation)["action"]

    def run(self, observation: Observation) -> dict[str, NDArray[np.float32]]:
        """All outputs by name."""
        feed = {"parameters": self.parameters, **observation} if "parameters" in self.shapes else observation
        if feed.keys() != self.shapes.keys():
            odd = sorted(feed.keys() ^ self.shapes.keys())[0]
            raise ValueError(f"observation holds {sorted(observation)}: the graph differs in {odd!r}")
        for name, shape in self.shapes.items():
            found = feed[name]
            dtype = self.dtypes[name]
            if found is None or found.shape != shape or found.dtype != dtype:
                what = None if found is None else f"{found.dtype}{list(found.shape)}"
                raise ValueError(f"{name} is {what}: it must be {dtype}{list(shape)}")
        return dict(zip(self._outputs, self._session.run(None, dict(feed)), strict=True))
