"""Rollout workers whose policy is compiled C."""

import json

import numpy as np
import pytest
import toy
from installed_compilers import needs_compiler
from toy_runs import log, trained_on_the_toy

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.cli import main
from robopolicy.experiments.evaluators import EvaluatorConfig
from robopolicy.runtime.compiled import CompiledGraph
from robopolicy.runtime.graph import OnnxPolicy


@needs_compiler
def test_parameters_may_change_between_calls():
    graph, rng = toy.policy_graph(), np.random.default_rng(0)
    policies = [OnnxPolicy(graph, np.zeros(toy.PARAMETERS, np.float32))]
    policies.append(CompiledGraph(c_graph(graph), policies[0].parameters))
    for _ in range(3):
        parameters = rng.normal(size=toy.PARAMETERS).astype(np.float32)
        seen = {name: rng.normal(size=shape).astype(np.float32) for name, shape in policies[0].shapes.items()}
        actions = []
        for policy in policies:
            policy.parameters = parameters
            observation = {name: array for name, array in seen.items() if name != "parameters"}
            actions.append(policy(observation))
        np.testing.assert_allclose(*actions, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_a_training_does_not_depend_on_the_number_of_its_workers(tmp_path):
    graph = c_graph(toy.policy_graph())
    logs = [log(trained_on_the_toy(tmp_path / str(workers), workers, graph=graph)) for workers in (1, 2)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"evaluator": "vector"}, "evaluator vector runs policies with JAX"),
        ({"evaluator": "device"}, "evaluator device runs policies with JAX"),
        ({"policy_runtime": "fortran"}, "policy_runtime is 'fortran': it must be one of onnx, c"),
    ],
)
def test_a_runtime_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        EvaluatorConfig(**{"policy_runtime": "c", **settings}).check()


def test_without_a_compiler_it_is_one_line(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ValueError, match="CC is 'no-such-compiler': there is no such command"):
        EvaluatorConfig(policy_runtime="c").check()


@needs_compiler
def test_with_the_engine_jax_it_is_refused(tmp_path, capsys):
    words = ["train", "es", "--out", str(tmp_path / "run"), "--engine", "jax", "--policy-runtime", "c"]
    assert main(words) == 2
    assert "with the engine jax, JAX runs the policy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@needs_compiler
@pytest.mark.slow
def test_a_run_keeps_its_runtime(tmp_path, capsys):
    out = str(tmp_path / "run")
    words = [
        "train",
        "es",
        "--out",
        out,
        "--engine",
        "mujoco",
        "--preset",
        "paper",
        "--episode-seconds",
        "0.5",
    ]
    words += ["--attention", "none", "--population", "2", "--generations", "1", "--held-out", "1"]
    assert main([*words, "--policy-runtime", "c", "--workers", "1"]) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["evaluator"]["policy_runtime"] == "c"
    resume = ["train", "es", "--resume", "--out", out, "--generations", "2", "--workers", "1"]
    assert main([*resume, "--policy-runtime", "onnx"]) == 2
    assert "policy_runtime is 'onnx': the run to resume has 'c'" in capsys.readouterr().err
    assert main(resume) == 0
