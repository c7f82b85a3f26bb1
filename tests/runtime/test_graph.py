"""OnnxPolicy runs a graph and refuses inputs that the graph does not have."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from robopolicy.runtime.graph import OnnxPolicy


def graph(output="action", names=("parameters", "point")):
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in names]
    outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, [3])]
    node = helper.make_node("Mul", [names[0], names[-1]], [output])
    body = helper.make_graph([node], "toy", inputs, outputs)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


TWO = np.full(3, 2.0, np.float32)
POINT = np.arange(3, dtype=np.float32)


def test_parameters_may_change_between_calls():
    policy = OnnxPolicy(graph(), TWO)
    np.testing.assert_array_equal(policy({"point": POINT}), 2 * POINT)
    policy.parameters = 2 * TWO
    np.testing.assert_array_equal(policy({"point": POINT}), 4 * POINT)
    np.testing.assert_array_equal(OnnxPolicy(graph(names=("point",)))({"point": POINT}), POINT**2)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        ({"point": np.zeros(4, np.float32)}, r"point is float32\[4\]: it must be float32\[3\]"),
        ({"point": np.zeros(3)}, r"point is float64\[3\]"),
        ({}, "'point'"),
    ],
)
def test_an_invalid_observation_is_refused_by_name(observation, message):
    with pytest.raises(ValueError, match=message):
        OnnxPolicy(graph(), TWO)(observation)


def test_observations_that_a_graph_does_not_read_change_nothing():
    action = OnnxPolicy(graph(), TWO)({"point": POINT, "colour": POINT})
    np.testing.assert_array_equal(action, 2 * POINT)


def test_an_invalid_graph_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"policy\.onnx"):
        OnnxPolicy(tmp_path / "policy.onnx")
    (tmp_path / "policy.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="not an ONNX graph"):
        OnnxPolicy(tmp_path / "policy.onnx")
    with pytest.raises(ValueError, match="'action'"):
        OnnxPolicy(graph(output="reaction"), TWO)
    with pytest.raises(ValueError, match=r"parameters is None: this graph needs a vector \[3\]"):
        OnnxPolicy(graph())
