"""What runs on the robot refuses what it was not made for."""

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


def test_it_acts_with_the_parameters_that_it_has_now():
    policy = OnnxPolicy(graph(), TWO)
    np.testing.assert_array_equal(policy({"point": POINT}), 2 * POINT)
    policy.parameters = 2 * TWO
    np.testing.assert_array_equal(policy({"point": POINT}), 4 * POINT)
    np.testing.assert_array_equal(OnnxPolicy(graph(names=("point",)))({"point": POINT}), POINT**2)


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        ({"point": np.zeros(4, np.float32)}, r"point is float32\[4\]: it must be float32\[3\]"),
        ({"point": np.zeros(3)}, r"point is float64\[3\]"),
        ({}, "'point'"),
        ({"point": POINT, "colour": POINT}, "'colour'"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused_by_name(observation, words):
    with pytest.raises(ValueError, match=words):
        OnnxPolicy(graph(), TWO)(observation)


def test_a_graph_that_is_none_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"policy\.onnx"):
        OnnxPolicy(tmp_path / "policy.onnx")
    (tmp_path / "policy.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="not an ONNX graph"):
        OnnxPolicy(tmp_path / "policy.onnx")
    with pytest.raises(ValueError, match="'action'"):
        OnnxPolicy(graph(output="reaction"), TWO)
    with pytest.raises(ValueError, match="parameters are not in this graph"):
        OnnxPolicy(graph())
