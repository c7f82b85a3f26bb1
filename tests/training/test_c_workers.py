"""Rollout workers whose policy is compiled C."""

import json
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import toy
from installed_compilers import needs_compiler
from toy_runs import log, trained_on_the_toy

from robopolicy.bundles.c_source.worker import c_graph
from robopolicy.cli import main
from robopolicy.experiments import evaluators
from robopolicy.experiments.environments import Environment
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
@pytest.mark.slow
def test_a_training_does_not_depend_on_the_number_of_its_workers(tmp_path):
    graph = c_graph(toy.policy_graph())
    logs = [log(trained_on_the_toy(tmp_path / str(workers), workers, graph=graph)) for workers in (1, 2)]
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"evaluator": "vector"}, "evaluator vector runs policies with JAX"),
        ({"evaluator": "device"}, "evaluator device runs policies with JAX"),
        (
            {"evaluator": "vector", "policy_runtime": "onnx"},
            "policy_runtime is 'onnx': evaluator vector runs",
        ),
        ({"policy_runtime": "fortran"}, "policy_runtime is 'fortran': it must be one of onnx, c"),
    ],
)
def test_a_runtime_that_cannot_be_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        EvaluatorConfig(**{"policy_runtime": "c", **settings}).check()


def test_without_a_compiler_it_is_one_line(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    words = "policy_runtime is 'c': CC is 'no-such-compiler': there is no such command"
    with pytest.raises(ValueError, match=words):
        EvaluatorConfig(policy_runtime="c").check()
    recorded = {"evaluator": {"evaluator": "local", "places": None, "policy_runtime": "c"}}
    with pytest.raises(ValueError, match=words):
        EvaluatorConfig().continuing("the run", recorded).check()


def test_damaged_settings_of_a_run_are_refused():
    with pytest.raises(ValueError, match=r"^evaluator is None in the run: its config\.json is damaged$"):
        EvaluatorConfig().continuing("the run", {"evaluator": None})


ON_MUJOCO = [Environment("stepping-stones", "mujoco", "paper")]


def settled(monkeypatch, config=None, variants=ON_MUJOCO, graph=None):
    """What a run of the toy's policy settles on, and why it is not C."""
    monkeypatch.setattr(evaluators, "worker_graph", lambda config, features: graph or toy.policy_graph())
    evaluator, why = (config or EvaluatorConfig()).settled(variants, SimpleNamespace(config=0, features=0))
    return evaluator.policy_runtime, why


@needs_compiler
def test_the_default_is_c_where_a_compiler_is_found(monkeypatch):
    assert settled(monkeypatch) == ("c", "")
    assert settled(monkeypatch, EvaluatorConfig("ray")) == ("c", "")
    assert settled(monkeypatch, EvaluatorConfig(policy_runtime="onnx")) == ("onnx", "")
    assert settled(monkeypatch, EvaluatorConfig("vector")) == (None, "")
    assert settled(monkeypatch, variants=[Environment("stepping-stones", "jax", "paper")]) == (None, "")


def test_the_default_is_onnx_where_c_cannot_be_and_says_why(monkeypatch):
    elsewhere = EvaluatorConfig("ray", address="cluster:6379")
    assert settled(monkeypatch, elsewhere) == ("onnx", "machines of a cluster may lack a C compiler")
    monkeypatch.setenv("CC", "false")
    assert settled(monkeypatch) == ("onnx", "false fails: no message")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", "")
    runtime, why = settled(monkeypatch)
    assert runtime == "onnx"
    assert why.startswith("there is no C compiler: install one of cc, gcc, clang")


@needs_compiler
def test_the_default_is_onnx_for_a_graph_without_c_source(monkeypatch):
    model = onnx.load_from_string(toy.policy_graph())
    model.graph.node[0].op_type = "Acosh"
    graph = model.SerializeToString()
    assert settled(monkeypatch, graph=graph) == ("onnx", "operation Acosh has no C source")


@pytest.mark.parametrize(
    ("recorded", "runtime"),
    [
        ({}, "onnx"),  # of the first version
        ({"evaluator": {"evaluator": "local", "places": None}}, "onnx"),
        ({"evaluator": {"policy_runtime": "onnx"}}, "onnx"),
        ({"evaluator": {"policy_runtime": None}}, None),  # a grid, whose runs have their own
        pytest.param({"evaluator": {"policy_runtime": "c"}}, "c", marks=needs_compiler),
    ],
)
def test_a_run_or_grid_goes_on_with_what_it_has_recorded(recorded, runtime):
    assert EvaluatorConfig().continuing("the run", recorded).policy_runtime == runtime
    assert EvaluatorConfig(policy_runtime="onnx").continuing("the run", recorded).policy_runtime == "onnx"
    if "evaluator" not in recorded:
        assert EvaluatorConfig("vector").continuing("the run", recorded).policy_runtime is None


@needs_compiler
@pytest.mark.slow
def test_with_the_engine_jax_it_is_refused(tmp_path, capsys):
    words = ["train", "es", "--out", str(tmp_path / "run"), "--engine", "jax", "--policy-runtime", "c"]
    assert main(words) == 2
    assert "with the engine jax, JAX runs the policy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


SHORT = [
    *("train", "es", "--engine", "mujoco", "--preset", "paper", "--episode-seconds", "0.5"),
    *("--attention", "none", "--population", "2", "--generations", "1", "--held-out", "1"),
]


@needs_compiler
@pytest.mark.slow
def test_a_run_keeps_its_runtime(tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "run")
    assert main([*SHORT, "--out", out, "--workers", "1"]) == 0
    assert "onnxruntime runs" not in capsys.readouterr().err
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["evaluator"]["policy_runtime"] == "c"
    resume = ["train", "es", "--resume", "--out", out, "--generations", "2", "--workers", "1"]
    assert main([*resume, "--policy-runtime", "onnx"]) == 2
    assert "policy_runtime is 'onnx': the run to resume has 'c'" in capsys.readouterr().err
    with monkeypatch.context() as without:
        without.setenv("CC", "no-such-compiler")
        assert main(resume) == 2
        assert "policy_runtime is 'c': CC is 'no-such-compiler'" in capsys.readouterr().err.splitlines()[-1]
    assert main(resume) == 0


@pytest.mark.slow
def test_a_run_without_a_compiler_records_onnx_and_resumes_with_it(tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "run")
    with monkeypatch.context() as without:
        without.setenv("CC", "no-such-compiler")
        assert main([*SHORT, "--out", out, "--workers", "1"]) == 0
    lines = capsys.readouterr().err
    assert "onnxruntime runs the policy in the rollout workers: CC is 'no-such-compiler'" in lines
    assert lines.count("Training none on stepping-stones") == 1
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["evaluator"]["policy_runtime"] == "onnx"
    assert main(["train", "es", "--resume", "--out", out, "--generations", "2", "--workers", "1"]) == 0


@needs_compiler
@pytest.mark.slow
def test_a_grid_leaves_the_runtime_to_its_runs(tmp_path):
    words = [word for word in SHORT[2:] if word not in ("--attention", "none")]
    words = ["grid", str(tmp_path / "grid"), *words, "--attention", "none", "--seeds", "0"]
    words += ["--test-episodes", "1", "--workers", "1"]
    for _ in range(2):
        assert main(words) == 0
    stored = json.loads((tmp_path / "grid" / "grid.json").read_text())
    assert stored["evaluator"]["policy_runtime"] is None
    (config,) = (tmp_path / "grid").glob("*/config.json")
    assert json.loads(config.read_text())["evaluator"]["policy_runtime"] == "c"
    del stored["evaluator"]["policy_runtime"]  # as an older version wrote it
    (tmp_path / "grid" / "grid.json").write_text(json.dumps(stored))
    assert main(words) == 0
