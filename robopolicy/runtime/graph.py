"""An exported ONNX graph, for rollout workers and bundles. It needs numpy and onnxruntime only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from robopolicy.settings import check_array

Observation = Mapping[str, NDArray[Any]]

DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}


class OnnxPolicy:
    """Runs an ONNX graph of `robopolicy export` on one thread.

    A graph may have its parameters, and the statistics of its observations, as inputs. It then reads the
    attributes `parameters` [P] and `normaliser` [2K], which callers may change between two calls.
    """

    def __init__(self, model: Path | bytes, parameters: NDArray[np.float32] | None = None) -> None:
        """`model` is the file or its bytes. Raises FileNotFoundError, or ValueError for another graph."""
        if isinstance(model, Path):
            if not model.is_file():
                raise FileNotFoundError(f"no policy at {str(model)!r}")
            model = model.read_bytes()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # fatal: the exceptions carry the message
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
            raise ValueError(f"the graph has outputs {', '.join(self._outputs)}: it must have 'action'")
        self.parameters = parameters
        self.normaliser: NDArray[np.float32] | None = None
        if "parameters" in self.shapes and parameters is None:
            wanted = list(self.shapes["parameters"])
            raise ValueError(f"parameters is None: this graph needs a vector {wanted}")

    def __call__(self, observation: Observation) -> NDArray[np.float32]:
        """The action [A] for one observation. Raises ValueError if names, shapes or dtypes do not match."""
        return self.run(observation)["action"]

    def run(self, observation: Observation) -> dict[str, NDArray[np.float32]]:
        """All outputs by name; observations that the graph does not read are left out. Raises ValueError."""
        vectors = {"parameters": self.parameters, "normaliser": self.normaliser}
        feed = {**vectors, **observation}
        missing = sorted(self.shapes.keys() - feed.keys())
        if missing:
            raise ValueError(f"observation holds {sorted(observation)}: the graph needs {missing[0]!r}, too")
        for name, shape in self.shapes.items():
            check_array(name, feed[name], shape, self.dtypes[name])
        inputs = {name: feed[name] for name in self.shapes}
        return dict(zip(self._outputs, self._session.run(None, inputs), strict=True))
