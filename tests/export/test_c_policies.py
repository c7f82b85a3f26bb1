"""Policies of every kind as C against onnxruntime, step by step."""

import numpy as np
import onnx
import pytest
from installed_compilers import needs_compiler
from onnx import TensorProto, helper

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import worker_graph
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.runs import load, trained_on
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy

pytestmark = [needs_compiler, pytest.mark.slow]
SHIPPED = ("stepping-stones-planned", "stepping-stones-angular-8x8", "stepping-stones-softmax")
STEPS = 60
# How far tensors may differ, as a share of the largest number of one, or of SMALL if that is smaller. The
# mask of angular attention is steep, so a few numbers may differ by more.
RELATIVE, SMALL = 3e-5, 0.1
FEW, MOST = 0.01, 1e-3


def both(policy, graph):
    return OnnxPolicy(graph, policy.parameters), CompiledGraph(c_graph(graph), policy.parameters)


def same(wanted, found):
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=5e-5, err_msg=name)


def plays(policy, steps, act):
    """Play one episode by `act`, a function from what the policy reads to an action."""
    trained = trained_on(policy)
    env = Environment.of(Environment(trained.task, "mujoco", trained.preset)).spec().make()
    observation, _ = env.reset(seed=4)
    for _ in range(steps):
        action = act({name: observation[name] for name in policy.functions.observation})
        observation, _, ended, cut, _ = env.step(action)
        if ended or cut:
            break
    env.close()


@pytest.mark.parametrize("name", [*SHIPPED, "bimanual-sweep-angular"])
def test_a_shipped_policy_computes_what_onnxruntime_computes(name):
    policy = load(name)
    onnx_policy, c_policy = both(policy, worker_graph(policy.config, policy.features))

    def act(seen):
        wanted = onnx_policy.run(seen)
        same(wanted, c_policy.run(seen))
        return wanted["action"]

    plays(policy, STEPS if name in SHIPPED else 3, act)


def showing_all(graph):
    """The graph with the result of every node as an output, and the operation of each by its name."""
    model = onnx.load_from_string(graph)
    body = model.graph
    outputs = {one.name for one in body.output}
    operations = {
        name: node.op_type for node in body.node for name in node.output if name and name not in outputs
    }
    for name in operations:
        body.node.append(helper.make_node("Cast", [name], [f"{name} shown"], to=TensorProto.FLOAT))
        body.output.append(helper.make_tensor_value_info(f"{name} shown", TensorProto.FLOAT, None))
    return model.SerializeToString(), operations


@pytest.mark.parametrize("name", [*SHIPPED, "stepping-stones-positive-256", "stepping-stones-memory"])
def test_every_tensor_of_a_shipped_policy_is_that_of_onnxruntime(name):
    """A choice, a clip or a normalisation may hide a wrong operation from the action."""
    policy, rng = load(name), np.random.default_rng(2)
    graph, operations = showing_all(worker_graph(policy.config, policy.features))
    onnx_policy, c_policy = both(policy, graph)
    varied = set()
    for _ in range(5):
        # In the images of a simulator, tokens are alike, and rounding decides which of them is first.
        seen = {
            name: rng.uniform(0, 2, wanted.shape).astype(np.float32)
            for name, wanted in policy.functions.observation.items()
        }
        wanted, found = onnx_policy.run(seen), c_policy.run(seen)
        for tensor, operation in operations.items():
            one, other = wanted[f"{tensor} shown"], found[f"{tensor} shown"]
            if operation == "TopK":  # neighbours whose values agree but for rounding may change places
                one, other = np.sort(one, axis=-1), np.sort(other, axis=-1)
            finite = np.isfinite(one)
            np.testing.assert_array_equal(other[~finite], one[~finite], f"{operation} {tensor}")
            largest = np.abs(one[finite]).max(initial=SMALL)
            far = np.abs(other[finite] - one[finite]) / largest
            assert far.max(initial=0) <= MOST, f"{operation} {tensor}"
            assert np.count_nonzero(far > RELATIVE) <= FEW * far.size, f"{operation} {tensor}"
            if one.min() < one.max():
                varied.add(tensor)
    assert len(varied) > len(operations) / 2
