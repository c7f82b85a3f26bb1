"""From an ONNX graph with static shapes to a program of C statements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from robopolicy.bundles.c_source.program import Program
from robopolicy.bundles.c_source.tensors import BYTE, FLOAT, Buffer, Tensor, UnsupportedError
from robopolicy.runtime.graph import NEXT, STARTS

Value = Tensor | NDArray[Any]  # of a name in the graph: computed at each step, or known before
Operation = Callable[[Program, Sequence[Value | None], Mapping[str, Any], int], Sequence[Tensor]]
ARGUMENTS: dict[int, str] = {TensorProto.FLOAT: FLOAT, TensorProto.UINT8: BYTE}
MOST_ROUNDS = 64  # of a loop, which is unrolled


class Lowered(NamedTuple):
    """A graph as a program.

    Attributes:
      program: its statements and constants.
      inputs, outputs: tensors by name, in the order of the graph; `state` is left out.
      state: for each of its arrays the first number, input and next value.
    """

    program: Program
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    state: dict[str, tuple[float, Tensor, Tensor]]


def lower(model: bytes, operations: Mapping[str, Operation]) -> Lowered:
    """Lower a graph. Raises UnsupportedError, in one line, that names what has no C source."""
    proto = onnx.load_from_string(model)
    versions = {one.domain: one.version for one in proto.opset_import}
    program, graph = Program(), proto.graph
    names: dict[str, Value] = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    inputs = dict[str, Tensor]()
    for value in graph.input:
        if value.name in names:
            continue
        inputs[value.name] = names[value.name] = _argument(value, len(inputs))
    _Walk(program, operations, versions).run(graph.node, names)
    outputs = {}
    for value in graph.output:
        found = names[value.name]
        outputs[value.name] = found if isinstance(found, Tensor) else program.constant(found)
        if outputs[value.name].kind != FLOAT:
            raise UnsupportedError(f"output {value.name!r} of the graph has no float32 numbers")
    starts = json.loads({one.key: one.value for one in proto.metadata_props}.get(STARTS, "{}"))
    state = {
        name: (float(start), inputs.pop(name), outputs.pop(NEXT + name)) for name, start in starts.items()
    }
    return Lowered(program, inputs, outputs, state)


def _argument(value: onnx.ValueInfoProto, place: int) -> Tensor:
    kind, dims = value.type.tensor_type.elem_type, value.type.tensor_type.shape.dim
    if kind not in ARGUMENTS or not all(dim.HasField("dim_value") for dim in dims):
        raise UnsupportedError(
            f"input {value.name!r} of the graph has no fixed shape of float32 or uint8 numbers"
        )
    shape = [dim.dim_value for dim in dims]
    buffer = Buffer(f"in{place}", ARGUMENTS[kind], int(np.prod(shape, dtype=int)), is_argument=True)
    return buffer.plain.seen_as(buffer.plain.view.reshape(shape))


class _Walk:
    """Lowers nodes in order. What depends on no input is computed now."""

    def __init__(
        self, program: Program, operations: Mapping[str, Operation], versions: Mapping[str, int]
    ) -> None:
        self._program, self._operations, self._versions = program, operations, versions

    def run(self, nodes: Sequence[onnx.NodeProto], names: dict[str, Value]) -> None:
        """Lower `nodes`; `names` has the values of all names so far, and gets those of their outputs."""
        for node in nodes:
            if node.domain not in ("", "ai.onnx"):
                raise UnsupportedError(f"operation {node.domain}.{node.op_type} has no C source")
            inputs = [names[name] if name else None for name in node.input]
            if node.op_type == "Loop":
                outputs: Sequence[Value] = self._unrolled(node, inputs, names)
            elif all(value is None or isinstance(value, np.ndarray) for value in inputs):
                outputs = self._known(node, inputs)
            else:
                outputs = self._lowered(node, inputs)
            names.update({name: value for name, value in zip(node.output, outputs, strict=False) if name})

    def _known(self, node: onnx.NodeProto, inputs: Sequence[Any]) -> Sequence[Value]:
        feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
        infos = [helper.make_value_info(name, onnx.TypeProto()) for name in (*feeds, *node.output) if name]
        given, made = infos[: len(feeds)], infos[len(feeds) :]
        graph = helper.make_graph([node], "known", given, made)
        opsets = [helper.make_opsetid("", self._versions.get("", 21))]
        outputs = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, feeds)
        found = iter(np.asarray(one) for one in outputs)
        return [next(found) if name else np.zeros(0) for name in node.output]

    def _lowered(self, node: onnx.NodeProto, inputs: Sequence[Value | None]) -> Sequence[Value]:
        attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}
        if node.op_type == "Shape":
            (tensor,) = inputs
            assert tensor is not None
            return [np.array(tensor.shape[attributes.get("start", 0) : attributes.get("end")], np.int64)]
        if node.op_type == "Size":
            assert inputs[0] is not None
            return [np.array(inputs[0].size, np.int64)]
        operation = self._operations.get(node.op_type)
        if operation is None or any(one.type == AttributeProto.GRAPH for one in node.attribute):
            raise UnsupportedError(f"operation {node.op_type} has no C source")
        return operation(self._program, inputs, attributes, len(node.output))

    def _unrolled(
        self, node: onnx.NodeProto, inputs: Sequence[Value | None], names: Mapping[str, Value]
    ) -> Sequence[Value]:
        """The rounds of a loop one after another; their number must be known, and no round may end it."""
        (body,) = (one.g for one in node.attribute if one.name == "body")
        rounds, going, *carried = inputs
        if not isinstance(rounds, np.ndarray) or not 0 <= int(rounds.reshape(-1)[0]) <= MOST_ROUNDS:
            raise UnsupportedError(f"operation Loop without a known number of at most {MOST_ROUNDS} rounds")
        count = int(rounds.reshape(-1)[0])
        scanned: list[list[Value]] = [[] for _ in body.output[1 + len(carried) :]]
        constants = {one.name: numpy_helper.to_array(one) for one in body.initializer}
        for number in range(count):
            if not (going is None or (isinstance(going, np.ndarray) and bool(going.reshape(-1)[0]))):
                raise UnsupportedError("operation Loop that a condition ends has no C source")
            inner: dict[str, Value] = {**names, **constants}
            values = [np.array(number, np.int64), np.array(True) if going is None else going, *carried]
            for one, value in zip(body.input, values, strict=True):
                assert value is not None
                inner[one.name] = value
            self.run(body.node, inner)
            going, *after = (inner[one.name] for one in body.output)
            carried, scans = [*after[: len(carried)]], after[len(carried) :]
            for row, value in zip(scanned, scans, strict=True):
                row.append(value)
        if scanned and not count:
            raise UnsupportedError("operation Loop without rounds that collects values has no C source")
        return [*(one for one in carried if one is not None), *(self._stacked(row) for row in scanned)]

    def _stacked(self, row: Sequence[Value]) -> Value:
        if all(isinstance(one, np.ndarray) for one in row):
            return np.stack([np.asarray(one) for one in row])
        tensors = [one if isinstance(one, Tensor) else self._program.constant(one) for one in row]
        parts = [one.at(np.newaxis) for one in tensors]
        (stacked,) = self._operations["Concat"](self._program, parts, {"axis": 0}, 1)
        return stacked
