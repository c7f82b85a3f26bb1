"""An exported ONNX graph, for rollout workers and bundles. It needs numpy and onnxruntime only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from robopolicy.reading_json import parse_json
from robopolicy.settings import check_array, is_finite

Observation = Mapping[str, NDArray[Any]]
Outputs = dict[str, NDArray[np.float32]]

NEXT = "next_"  # with the name of a state's array: the output that holds it for the next step
STARTS = "state_starts"  # of the graph's metadata: for each array of the state its first number, as JSON
DTYPES = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}


class Stepping(ABC):
    """A policy with a state, as a graph of either runtime; `run` is a step."""

    starts: dict[str, float]
    state_shapes: dict[str, tuple[int, ...]]

    def reset(self) -> None:
        """Begin an episode: the next step has the first state."""
        self._state = {
            name: np.full(shape, self.starts[name], np.float32) for name, shape in self.state_shapes.items()
        }

    def __call__(self, observation: Observation) -> NDArray[np.float32]:
        """The action [A] for one observation. Raises ValueError if names, shapes or dtypes do not match."""
        return self.run(observation)["action"]

    @abstractmethod
    def run(self, observation: Observation) -> Outputs:
        """All outputs by name; observations that the graph does not read are left out.

        Raises ValueError, and ArithmeticError if a number of the next state is not finite: the state stays.
        """

    def _without_state(self, outputs: Outputs, check: Callable[[Outputs], None] = lambda _: None) -> Outputs:
        """The outputs without the next state, which is kept for the next step unless `check` raises."""
        state = {name: outputs.pop(NEXT + name) for name in self._state}
        for name, array in state.items():
            if not np.isfinite(array).all():
                raise ArithmeticError(f"{name} would hold a number that is not finite")
        check(outputs)
        self._state = state
        return outputs


class OnnxPolicy(Stepping):
    """Runs an ONNX graph of `robopolicy export` on one thread.

    A graph may have its parameters, and the statistics of its observations, as inputs. It then reads the
    attributes `parameters` [P] and `normaliser` [2K], which callers may change between two calls. It may have
    a state: inputs that hold outputs of the step before. An episode begins with `reset`.
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
        self._outputs = [node.name for node in outputs]
        self.output_shapes = {node.name: tuple(node.shape) for node in outputs}
        self.output_dtypes = {node.name: DTYPES.get(node.type, node.type) for node in outputs}
        self.starts, self.state_shapes = self._state_of(self._session.get_modelmeta().custom_metadata_map)
        self.reset()
        if "action" not in self._outputs:
            raise ValueError(f"the graph has outputs {', '.join(self._outputs)}: it must have 'action'")
        self.parameters = parameters
        self.normaliser: NDArray[np.float32] | None = None
        if "parameters" in self.shapes and parameters is None:
            wanted = list(self.shapes["parameters"])
            raise ValueError(f"parameters is None: this graph needs a vector {wanted}")

    def _state_of(self, metadata: Mapping[str, str]) -> tuple[dict[str, float], dict[str, tuple[int, ...]]]:
        """The first number and the shape of each array of the state, which leave inputs and outputs."""
        starts = parse_json(metadata.get(STARTS, "{}").encode(), STARTS, allow_nan=False)
        if not (isinstance(starts, dict) and all(map(is_finite, starts.values()))):
            raise ValueError(f"{STARTS} of the graph is {starts!r}: it must hold a number for each array")
        shapes = {}
        for name in starts:
            shape, after = self.shapes.pop(name, None), self.output_shapes.pop(NEXT + name, None)
            kinds = self.dtypes.pop(name, None), self.output_dtypes.pop(NEXT + name, None)
            is_fixed = all(type(side) is int and side >= 1 for side in shape or ())
            if shape is None or not is_fixed or shape != after or kinds != ("float32", "float32"):
                raise ValueError(
                    f"the graph has a state {name!r}: it must be an input and the output {NEXT + name!r}, "
                    "float32 of the same fixed shape"
                )
            shapes[name] = shape
        return {name: float(start) for name, start in starts.items()}, shapes

    def run(self, observation: Observation, check: Callable[[Outputs], None] = lambda _: None) -> Outputs:
        """As `Stepping.run`; an error of `check`, which is called with the outputs, leaves the state, too."""
        vectors = {"parameters": self.parameters, "normaliser": self.normaliser}
        feed = {**vectors, **observation}
        missing_input(self.shapes, feed, observation)
        for name, shape in self.shapes.items():
            check_array(name, feed[name], shape, self.dtypes[name])
        inputs = {name: feed[name] for name in self.shapes} | self._state
        outputs = dict(zip(self._outputs, self._session.run(None, inputs), strict=True))
        return self._without_state(outputs, check)


def missing_input(inputs: Iterable[str], feed: Mapping[str, Any], observation: Observation) -> None:
    """Raise ValueError, naming the first of `inputs` that `feed` lacks."""
    missing = sorted(set(inputs) - feed.keys())
    if missing:
        raise ValueError(f"observation holds {sorted(observation)}: the graph needs {missing[0]!r}, too")
