"""Policies of every kind as C against onnxruntime, step by step."""

import numpy as np
import pytest
from installed_compilers import needs_compiler

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.bundles.onnx import worker_graph
from robopolicy.experiments.environments import Environment
from robopolicy.experiments.runs import load, trained_on
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy

pytestmark = [needs_compiler, pytest.mark.slow]
SHIPPED = ("stepping-stones-planned", "stepping-stones-angular-8x8", "stepping-stones-softmax")
STEPS = 60


def both(policy):
    graph = worker_graph(policy.config, policy.features)
    return OnnxPolicy(graph, policy.parameters), CompiledGraph(c_graph(graph), policy.parameters)


def same(wanted, found):
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=5e-5, err_msg=name)


@pytest.mark.parametrize("name", [*SHIPPED, "bimanual-sweep-angular"])
def test_a_shipped_policy_computes_what_onnxruntime_computes(name):
    policy, trained = load(name), trained_on(load(name))
    env = Environment.of(Environment(trained.task, "mujoco", trained.preset)).spec().make()
    observation, _ = env.reset(seed=4)
    onnx, c = both(policy)
    for _ in range(STEPS if name in SHIPPED else 3):
        seen = {name: observation[name] for name in policy.functions.observation}
        wanted = onnx.run(seen)
        same(wanted, c.run(seen))
        observation, _, ended, cut, _ = env.step(wanted["action"])
        if ended or cut:
            break
    env.close()
